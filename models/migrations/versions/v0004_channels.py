"""Channels: cards, listeners, invitations, followed threads, tokens

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
ID = sa.String(length=36)


def upgrade() -> None:
    op.create_table(
        "cards",
        sa.Column("id", ID, nullable=False),
        sa.Column("session_id", ID, nullable=False),
        sa.Column("message_out_id", ID, nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("subject_id", ID, nullable=True),
        sa.Column("payload_hash", sa.String(length=64), nullable=True),
        sa.Column("user_id", sa.String(length=255), nullable=True),
        sa.Column("channel_type", sa.String(length=50), nullable=False),
        sa.Column("platform_id", sa.String(length=255), nullable=False),
        sa.Column("thread_id", sa.String(length=255), nullable=True),
        sa.Column("options", JSON, nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("kind IN ('question', 'approval', 'card')", name=op.f("ck_cards_kind")),
        sa.CheckConstraint("status IN ('open', 'closed')", name=op.f("ck_cards_status")),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_cards_session_id_sessions")),
        sa.ForeignKeyConstraint(
            ["message_out_id"], ["messages_out.id"], name=op.f("fk_cards_message_out_id_messages_out")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cards")),
    )
    op.create_index("ix_cards_place", "cards", ["channel_type", "platform_id", "status"])
    op.create_index("ix_cards_subject_id", "cards", ["subject_id"])
    op.create_index("ix_cards_message_out_id", "cards", ["message_out_id"])
    op.create_table(
        "listeners",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", TIMESTAMP, nullable=True),
        sa.Column("cursor", JSON, nullable=True),
        sa.Column("heard_at", TIMESTAMP, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_listeners")),
    )
    op.create_table(
        "invitations",
        sa.Column("id", ID, nullable=False),
        sa.Column("code_hash", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("agent_group_id", ID, nullable=True),
        sa.Column("expires_at", TIMESTAMP, nullable=False),
        sa.Column("used_by", sa.String(length=255), nullable=True),
        sa.Column("used_at", TIMESTAMP, nullable=True),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("role IN ('owner', 'admin', 'member')", name=op.f("ck_invitations_role")),
        sa.CheckConstraint("role <> 'owner' OR agent_group_id IS NULL", name=op.f("ck_invitations_owner_is_global")),
        sa.CheckConstraint(
            "role <> 'member' OR agent_group_id IS NOT NULL", name=op.f("ck_invitations_member_of_an_agent")
        ),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_invitations_agent_group_id_agent_groups")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("code_hash", name=op.f("uq_invitations_code_hash")),
    )
    op.create_table(
        "wrong_codes",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_wrong_codes")),
    )
    op.create_index("ix_wrong_codes_user", "wrong_codes", ["user_id", "created_at"])
    op.create_table(
        "engagements",
        sa.Column("agent_group_id", ID, nullable=False),
        sa.Column("messaging_group_id", ID, nullable=False),
        sa.Column("thread_id", sa.String(length=255), nullable=False),
        sa.Column("since", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_engagements_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(
            ["messaging_group_id"],
            ["messaging_groups.id"],
            name=op.f("fk_engagements_messaging_group_id_messaging_groups"),
        ),
        sa.PrimaryKeyConstraint("agent_group_id", "messaging_group_id", "thread_id", name=op.f("pk_engagements")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", ID, nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("revoked_at", TIMESTAMP, nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tokens_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_tokens_token_hash")),
    )
    op.create_index(op.f("ix_tokens_user_id"), "tokens", ["user_id"])
    is_web = sa.text("channel_type = 'web'")
    op.create_index(
        "ix_messages_out_web",
        "messages_out",
        ["platform_id", "delivered_at"],
        postgresql_where=is_web,
        sqlite_where=is_web,
    )
    is_paused = sa.text("status = 'paused'")
    op.create_index(
        "ix_messages_in_waiting",
        "messages_in",
        ["channel_type", "sender_id"],
        postgresql_where=is_paused,
        sqlite_where=is_paused,
    )
    # As unique as before, and now also for asking whether a platform's message was heard, by whichever agent.
    _reorder(["channel_type", "platform_id", "platform_message_id", "agent_group_id"])


def _reorder(columns: list[str]) -> None:
    op.drop_index("uq_messages_in_platform_message", "messages_in")
    has_id = sa.text("platform_message_id IS NOT NULL")
    op.create_index(
        "uq_messages_in_platform_message",
        "messages_in",
        columns,
        unique=True,
        postgresql_where=has_id,
        sqlite_where=has_id,
    )


def downgrade() -> None:
    _reorder(["agent_group_id", "channel_type", "platform_id", "platform_message_id"])
    op.drop_index("ix_messages_in_waiting", "messages_in")
    op.drop_index("ix_messages_out_web", "messages_out")
    for table in ("tokens", "engagements", "wrong_codes", "invitations", "listeners", "cards"):
        op.drop_table(table)
