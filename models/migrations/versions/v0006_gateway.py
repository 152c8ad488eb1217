"""The gateway: what tokens may do, browsers that are signed in, who did what, replays

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
ID = sa.String(length=36)
JSON = sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), "postgresql")

_REPLAYS = sa.text("replay_of IS NOT NULL")
_UNDELIVERED = sa.text("status IN ('failed', 'unknown')")


def upgrade() -> None:
    # What those that were made before could do.
    op.add_column("tokens", sa.Column("scopes", JSON, server_default='["send", "decide"]', nullable=False))
    op.add_column("tokens", sa.Column("expires_at", TIMESTAMP, nullable=True))
    op.create_table(
        "sign_ins",
        sa.Column("id", ID, nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("token_id", ID, nullable=True),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("expires_at", TIMESTAMP, nullable=False),
        sa.Column("used_at", TIMESTAMP, nullable=True),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("kind IN ('link', 'browser')", name=op.f("ck_sign_ins_kind")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sign_ins_user_id_users")),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_sign_ins_token_id_tokens")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_ins")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_sign_ins_secret_hash")),
    )
    op.create_index("ix_sign_ins_expires_at", "sign_ins", ["expires_at"])
    op.create_table(
        "audit",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", TIMESTAMP, nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("act", sa.String(length=50), nullable=False),
        sa.Column("agent_group_id", ID, nullable=True),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("detail", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at", "audit", ["at", "id"])
    op.add_column("messages_in", sa.Column("provider", sa.String(length=100), nullable=True))
    op.add_column("messages_in", sa.Column("model", sa.String(length=200), nullable=True))
    op.add_column("messages_in", sa.Column("replay_of", ID, nullable=True))
    op.add_column("sessions", sa.Column("replay_of", ID, nullable=True))
    op.add_column("sessions", sa.Column("delivers", sa.Boolean(), server_default=sa.true(), nullable=False))
    op.create_index(
        "ix_sessions_replay_of", "sessions", ["replay_of"], postgresql_where=_REPLAYS, sqlite_where=_REPLAYS
    )
    op.create_index(
        "ix_messages_out_undelivered",
        "messages_out",
        ["created_at"],
        postgresql_where=_UNDELIVERED,
        sqlite_where=_UNDELIVERED,
    )


def downgrade() -> None:
    op.drop_index("ix_messages_out_undelivered", "messages_out")
    op.drop_index("ix_sessions_replay_of", "sessions")
    op.drop_column("sessions", "delivers")
    op.drop_column("sessions", "replay_of")
    op.drop_column("messages_in", "replay_of")
    op.drop_column("messages_in", "model")
    op.drop_column("messages_in", "provider")
    op.drop_index("ix_audit_at", "audit")
    op.drop_table("audit")
    op.drop_index("ix_sign_ins_expires_at", "sign_ins")
    op.drop_table("sign_ins")
    op.drop_column("tokens", "expires_at")
    op.drop_column("tokens", "scopes")
