"""The spine: all tables

Revision ID: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "agent_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("folder", sa.String(length=100), nullable=False),
        sa.Column("provider", sa.String(length=100), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("config", JSON, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_groups")),
        sa.UniqueConstraint("folder", name=op.f("uq_agent_groups_folder")),
    )
    op.create_table(
        "messaging_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("channel_type", sa.String(length=50), nullable=False),
        sa.Column("platform_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=True),
        sa.Column("is_group", sa.Boolean(), nullable=False),
        sa.Column("unknown_sender_policy", sa.String(length=20), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint(
            "unknown_sender_policy IN ('strict', 'request_approval', 'public')",
            name=op.f("ck_messaging_groups_unknown_sender_policy"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messaging_groups")),
        sa.UniqueConstraint("channel_type", "platform_id", name=op.f("uq_messaging_groups_channel_type_platform_id")),
    )
    op.create_table(
        "processes",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("queues", JSON, nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("seen_at", TIMESTAMP, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_processes")),
    )
    op.create_table(
        "provider_health",
        sa.Column("provider", sa.String(length=100), nullable=False),
        sa.Column("account", sa.String(length=100), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("until", TIMESTAMP, nullable=True),
        sa.Column("checked_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("state IN ('ok', 'limited', 'down')", name=op.f("ck_provider_health_state")),
        sa.PrimaryKeyConstraint("provider", "account", name=op.f("pk_provider_health")),
    )
    op.create_table(
        "rejected",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("source", sa.String(length=100), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rejected")),
    )
    op.create_index(op.f("ix_rejected_created_at"), "rejected", ["created_at"], unique=False)

    op.create_table(
        "users",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=50), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=True),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
    )
    op.create_table(
        "agent_group_members",
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("agent_group_id", sa.String(length=36), nullable=False),
        sa.Column("added_by", sa.String(length=255), nullable=True),
        sa.Column("added_at", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_agent_group_members_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_agent_group_members_user_id_users")),
        sa.PrimaryKeyConstraint("user_id", "agent_group_id", name=op.f("pk_agent_group_members")),
    )
    op.create_table(
        "messaging_group_agents",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("messaging_group_id", sa.String(length=36), nullable=False),
        sa.Column("agent_group_id", sa.String(length=36), nullable=False),
        sa.Column("trigger_rules", JSON, nullable=False),
        sa.Column("response_scope", sa.String(length=20), nullable=False),
        sa.Column("session_mode", sa.String(length=20), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint(
            "response_scope IN ('all', 'triggered', 'allowlisted')",
            name=op.f("ck_messaging_group_agents_response_scope"),
        ),
        sa.CheckConstraint(
            "session_mode IN ('shared', 'per-thread')", name=op.f("ck_messaging_group_agents_session_mode")
        ),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_messaging_group_agents_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(
            ["messaging_group_id"],
            ["messaging_groups.id"],
            name=op.f("fk_messaging_group_agents_messaging_group_id_messaging_groups"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messaging_group_agents")),
        sa.UniqueConstraint(
            "messaging_group_id",
            "agent_group_id",
            name=op.f("uq_messaging_group_agents_messaging_group_id_agent_group_id"),
        ),
    )
    op.create_index(
        op.f("ix_messaging_group_agents_agent_group_id"), "messaging_group_agents", ["agent_group_id"], unique=False
    )

    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("agent_group_id", sa.String(length=36), nullable=False),
        sa.Column("messaging_group_id", sa.String(length=36), nullable=True),
        sa.Column("thread_id", sa.String(length=255), nullable=False),
        sa.Column("provider", sa.String(length=100), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("continuation", JSON, nullable=True),
        sa.Column("message_seq", sa.Integer(), nullable=False),
        sa.Column("turn_seq", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("lease_expires_at", TIMESTAMP, nullable=True),
        sa.Column("activity", sa.String(length=200), nullable=True),
        sa.Column("activity_since", TIMESTAMP, nullable=True),
        sa.Column("woken_at", TIMESTAMP, nullable=True),
        sa.Column("resume_after", TIMESTAMP, nullable=True),
        sa.Column("last_active", TIMESTAMP, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("status IN ('active', 'closed')", name=op.f("ck_sessions_status")),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_sessions_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(
            ["messaging_group_id"],
            ["messaging_groups.id"],
            name=op.f("fk_sessions_messaging_group_id_messaging_groups"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_last_active", "sessions", ["last_active"], unique=False)
    op.create_index(
        "ix_sessions_lease",
        "sessions",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("lease_expires_at IS NOT NULL"),
        sqlite_where=sa.text("lease_expires_at IS NOT NULL"),
    )
    op.create_index(op.f("ix_sessions_messaging_group_id"), "sessions", ["messaging_group_id"], unique=False)
    op.create_index(
        "uq_sessions_active",
        "sessions",
        ["agent_group_id", "messaging_group_id", "thread_id"],
        unique=True,
        postgresql_where=sa.text("status = 'active'"),
        sqlite_where=sa.text("status = 'active'"),
    )

    op.create_table(
        "user_dms",
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("channel_type", sa.String(length=50), nullable=False),
        sa.Column("messaging_group_id", sa.String(length=36), nullable=False),
        sa.Column("resolved_at", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(
            ["messaging_group_id"],
            ["messaging_groups.id"],
            name=op.f("fk_user_dms_messaging_group_id_messaging_groups"),
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_user_dms_user_id_users")),
        sa.PrimaryKeyConstraint("user_id", "channel_type", name=op.f("pk_user_dms")),
    )
    op.create_table(
        "user_roles",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("agent_group_id", sa.String(length=36), nullable=True),
        sa.Column("granted_by", sa.String(length=255), nullable=True),
        sa.Column("granted_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("role <> 'owner' OR agent_group_id IS NULL", name=op.f("ck_user_roles_owner_is_global")),
        sa.CheckConstraint("role IN ('owner', 'admin')", name=op.f("ck_user_roles_role")),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_user_roles_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_user_roles_user_id_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_user_roles")),
    )
    op.create_index(
        "uq_user_roles_global",
        "user_roles",
        ["user_id", "role"],
        unique=True,
        postgresql_where=sa.text("agent_group_id IS NULL"),
        sqlite_where=sa.text("agent_group_id IS NULL"),
    )
    op.create_index(
        "uq_user_roles_scoped",
        "user_roles",
        ["user_id", "role", "agent_group_id"],
        unique=True,
        postgresql_where=sa.text("agent_group_id IS NOT NULL"),
        sqlite_where=sa.text("agent_group_id IS NOT NULL"),
    )

    op.create_table(
        "turns",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=100), nullable=False),
        sa.Column("provider_version", sa.String(length=100), nullable=True),
        sa.Column("capabilities", JSON, nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("error_class", sa.String(length=30), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("started_at", TIMESTAMP, nullable=False),
        sa.Column("ended_at", TIMESTAMP, nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'waiting', 'parked', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_turns_status"),
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_turns_session_id_sessions")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turns")),
        sa.UniqueConstraint("session_id", "number", name=op.f("uq_turns_session_id_number")),
    )
    op.create_index(
        "uq_turns_open",
        "turns",
        ["session_id"],
        unique=True,
        postgresql_where=sa.text("status IN ('running', 'waiting', 'parked')"),
        sqlite_where=sa.text("status IN ('running', 'waiting', 'parked')"),
    )

    op.create_table(
        "approvals",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=True),
        sa.Column("category", sa.String(length=50), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("risk", sa.String(length=10), nullable=False),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("payload_hash", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("decided_by", sa.String(length=255), nullable=True),
        sa.Column("decided_at", TIMESTAMP, nullable=True),
        sa.Column("expires_at", TIMESTAMP, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("risk IN ('low', 'medium', 'high')", name=op.f("ck_approvals_risk")),
        sa.CheckConstraint(
            "status IN ('pending', 'approved', 'denied', 'expired', 'used')", name=op.f("ck_approvals_status")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_approvals_session_id_sessions")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_approvals_turn_id_turns")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index(
        "ix_approvals_expiry",
        "approvals",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_index(op.f("ix_approvals_session_id"), "approvals", ["session_id"], unique=False)

    op.create_table(
        "events",
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=True),
        sa.Column("type", sa.String(length=30), nullable=False),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_events_session_id_sessions")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_events_turn_id_turns")),
        sa.PrimaryKeyConstraint("session_id", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "messages_in",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("agent_group_id", sa.String(length=36), nullable=True),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("status_changed_at", TIMESTAMP, nullable=False),
        sa.Column("wakes", sa.Boolean(), nullable=False),
        sa.Column("process_after", TIMESTAMP, nullable=False),
        sa.Column("recurrence", sa.String(length=100), nullable=True),
        sa.Column("timezone", sa.String(length=50), nullable=False),
        sa.Column("series_id", sa.String(length=36), nullable=True),
        sa.Column("recurred", sa.Boolean(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=True),
        sa.Column("channel_type", sa.String(length=50), nullable=False),
        sa.Column("platform_id", sa.String(length=255), nullable=False),
        sa.Column("thread_id", sa.String(length=255), nullable=True),
        sa.Column("platform_message_id", sa.String(length=255), nullable=True),
        sa.Column("sender_id", sa.String(length=255), nullable=True),
        sa.Column("content", JSON, nullable=False),
        sa.Column("error_class", sa.String(length=30), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint(
            "kind IN ('chat', 'chat-sdk', 'task', 'webhook', 'system')", name=op.f("ck_messages_in_kind")
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'processing', 'completed', 'failed', 'paused', 'discarded')",
            name=op.f("ck_messages_in_status"),
        ),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_messages_in_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_messages_in_session_id_sessions")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_messages_in_turn_id_turns")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages_in")),
        sa.UniqueConstraint("series_id", "process_after", name=op.f("uq_messages_in_series_id_process_after")),
        sa.UniqueConstraint("session_id", "seq", name=op.f("uq_messages_in_session_id_seq")),
    )
    op.create_index(
        "ix_messages_in_dead",
        "messages_in",
        ["status_changed_at"],
        unique=False,
        postgresql_where=sa.text("status = 'failed'"),
        sqlite_where=sa.text("status = 'failed'"),
    )
    op.create_index(
        "ix_messages_in_due",
        "messages_in",
        ["process_after", "session_id"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_messages_in_open",
        "messages_in",
        ["session_id", "seq"],
        unique=False,
        postgresql_where=sa.text("status IN ('pending', 'processing')"),
        sqlite_where=sa.text("status IN ('pending', 'processing')"),
    )
    op.create_index(
        "ix_messages_in_recurring",
        "messages_in",
        ["id"],
        unique=False,
        postgresql_where=sa.text(
            "recurrence IS NOT NULL AND NOT recurred AND status IN ('completed', 'failed', 'discarded')"
        ),
        sqlite_where=sa.text(
            "recurrence IS NOT NULL AND NOT recurred AND status IN ('completed', 'failed', 'discarded')"
        ),
    )
    op.create_index("ix_messages_in_turn_id", "messages_in", ["turn_id"], unique=False)
    op.create_index(
        "uq_messages_in_platform_message",
        "messages_in",
        ["agent_group_id", "channel_type", "platform_id", "platform_message_id"],
        unique=True,
        postgresql_where=sa.text("platform_message_id IS NOT NULL"),
        sqlite_where=sa.text("platform_message_id IS NOT NULL"),
    )

    op.create_table(
        "steps",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("idempotent", sa.Boolean(), nullable=False),
        sa.Column("input", JSON, nullable=False),
        sa.Column("output", JSON, nullable=True),
        sa.Column("started_at", TIMESTAMP, nullable=False),
        sa.Column("ended_at", TIMESTAMP, nullable=True),
        sa.CheckConstraint("kind IN ('model', 'tool')", name=op.f("ck_steps_kind")),
        sa.CheckConstraint("status IN ('started', 'finished', 'failed')", name=op.f("ck_steps_status")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_steps_turn_id_turns")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("turn_id", "key", name=op.f("uq_steps_turn_id_key")),
        sa.UniqueConstraint("turn_id", "number", name=op.f("uq_steps_turn_id_number")),
    )
    op.create_table(
        "transcript_items",
        sa.Column("turn_id", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("type", sa.String(length=12), nullable=False),
        sa.Column("content", JSON, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("role IN ('user', 'assistant', 'tool')", name=op.f("ck_transcript_items_role")),
        sa.CheckConstraint(
            "type IN ('text', 'tool_call', 'tool_result', 'thinking', 'media')", name=op.f("ck_transcript_items_type")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_transcript_items_session_id_sessions")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_transcript_items_turn_id_turns")),
        sa.PrimaryKeyConstraint("turn_id", "position", name=op.f("pk_transcript_items")),
    )
    op.create_index("ix_transcript_items_session", "transcript_items", ["session_id", "id"], unique=False)

    op.create_table(
        "usage",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("agent_group_id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=True),
        sa.Column("provider", sa.String(length=100), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Numeric(precision=14, scale=8), nullable=True),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_usage_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_usage_session_id_sessions")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_usage_turn_id_turns")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
    )
    op.create_index("ix_usage_group_time", "usage", ["agent_group_id", "created_at"], unique=False)
    op.create_index("ix_usage_turn_id", "usage", ["turn_id"], unique=False)

    op.create_table(
        "messages_out",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=True),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("in_reply_to", sa.String(length=36), nullable=True),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=False),
        sa.Column("deliver_after", TIMESTAMP, nullable=False),
        sa.Column("rung_at", TIMESTAMP, nullable=False),
        sa.Column("recurrence", sa.String(length=100), nullable=True),
        sa.Column("timezone", sa.String(length=50), nullable=False),
        sa.Column("series_id", sa.String(length=36), nullable=True),
        sa.Column("channel_type", sa.String(length=50), nullable=False),
        sa.Column("platform_id", sa.String(length=255), nullable=False),
        sa.Column("thread_id", sa.String(length=255), nullable=True),
        sa.Column("content", JSON, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("claim_token", sa.BigInteger(), nullable=False),
        sa.Column("claim_expires_at", TIMESTAMP, nullable=True),
        sa.Column("receipt", JSON, nullable=True),
        sa.Column("error_class", sa.String(length=30), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("delivered_at", TIMESTAMP, nullable=True),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint(
            "kind IN ('chat', 'chat-sdk', 'task', 'webhook', 'system', 'notice')", name=op.f("ck_messages_out_kind")
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'sending', 'delivered', 'failed', 'unknown', 'cancelled')",
            name=op.f("ck_messages_out_status"),
        ),
        sa.ForeignKeyConstraint(
            ["in_reply_to"], ["messages_in.id"], name=op.f("fk_messages_out_in_reply_to_messages_in")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_messages_out_session_id_sessions")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_messages_out_turn_id_turns")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages_out")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_messages_out_idempotency_key")),
        sa.UniqueConstraint("session_id", "seq", name=op.f("uq_messages_out_session_id_seq")),
    )
    op.create_index(
        "ix_messages_out_due",
        "messages_out",
        ["deliver_after"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_messages_out_order",
        "messages_out",
        ["session_id", "seq"],
        unique=False,
        postgresql_where=sa.text("status IN ('pending', 'sending')"),
        sqlite_where=sa.text("status IN ('pending', 'sending')"),
    )
    op.create_index(
        "ix_messages_out_sending",
        "messages_out",
        ["claim_expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'sending'"),
        sqlite_where=sa.text("status = 'sending'"),
    )
    op.create_index("ix_messages_out_turn_id", "messages_out", ["turn_id"], unique=False)

    op.create_table(
        "pending_questions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=True),
        sa.Column("message_out_id", sa.String(length=36), nullable=False),
        sa.Column("channel_type", sa.String(length=50), nullable=False),
        sa.Column("platform_id", sa.String(length=255), nullable=False),
        sa.Column("thread_id", sa.String(length=255), nullable=True),
        sa.Column("question", JSON, nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("answered_by", sa.String(length=255), nullable=True),
        sa.Column("expires_at", TIMESTAMP, nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("status IN ('pending', 'answered', 'expired')", name=op.f("ck_pending_questions_status")),
        sa.ForeignKeyConstraint(
            ["message_out_id"], ["messages_out.id"], name=op.f("fk_pending_questions_message_out_id_messages_out")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_pending_questions_session_id_sessions")),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_pending_questions_turn_id_turns")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pending_questions")),
    )
    op.create_index(
        "ix_pending_questions_expiry",
        "pending_questions",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_index(op.f("ix_pending_questions_session_id"), "pending_questions", ["session_id"], unique=False)


def downgrade() -> None:
    op.drop_table("pending_questions")
    op.drop_table("messages_out")
    op.drop_table("usage")
    op.drop_table("transcript_items")
    op.drop_table("steps")
    op.drop_table("messages_in")
    op.drop_table("events")
    op.drop_table("approvals")
    op.drop_table("turns")
    op.drop_table("user_roles")
    op.drop_table("user_dms")
    op.drop_table("sessions")
    op.drop_table("messaging_group_agents")
    op.drop_table("agent_group_members")
    op.drop_table("users")
    op.drop_table("rejected")
    op.drop_table("provider_health")
    op.drop_table("processes")
    op.drop_table("messaging_groups")
    op.drop_table("agent_groups")
