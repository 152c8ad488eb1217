"""One-time codes: whoever writes one to an agent's account becomes what it says. Only its hash is kept."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Timestamp, new_id, now


class Invitation(Base):
    __tablename__ = "invitations"
    __table_args__ = (
        CheckConstraint("role IN ('owner', 'admin', 'member')", name="role"),
        CheckConstraint("role <> 'owner' OR agent_group_id IS NULL", name="owner_is_global"),
        CheckConstraint("role <> 'member' OR agent_group_id IS NOT NULL", name="member_of_an_agent"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    code_hash: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(10))
    agent_group_id: Mapped[str | None] = mapped_column(ForeignKey("agent_groups.id"))
    expires_at: Mapped[datetime] = mapped_column(Timestamp)
    used_by: Mapped[str | None] = mapped_column(String(255))
    used_at: Mapped[datetime | None] = mapped_column(Timestamp)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
