"""Schedules: how tasks are run, dates apart from delays, recurring reminders, rounds of upkeep

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
ID = sa.String(length=36)

_DUE_CHATS = sa.text("status = 'pending' AND kind <> 'task'")
_DUE_TASKS = sa.text("status = 'pending' AND kind = 'task'")
_PENDING = sa.text("status = 'pending'")
_RUNG = sa.text("woken_at IS NOT NULL")
_SKIPS = sa.text("catch_up = 'skip'")
_IN_SERIES = sa.text("series_id IS NOT NULL")
_REPEATING = sa.text("recurrence IS NOT NULL AND NOT recurred AND status IN ('delivered', 'failed', 'unknown')")
# Columns that name a row of another table: whoever removes such a row is asked whether anything still names it.
_NAMES = (
    ("messages_out", "in_reply_to"),
    ("events", "turn_id"),
    ("pending_questions", "turn_id"),
    ("pending_questions", "message_out_id"),
    ("approvals", "turn_id"),
    ("budget_days", "approval_id"),
    ("program_states", "turn_id"),
)


def _index(name: str, table: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)


def upgrade() -> None:
    op.create_table(
        "task_series",
        sa.Column("id", ID, nullable=False),
        sa.Column("agent_group_id", ID, nullable=False),
        sa.Column("catch_up", sa.String(length=10), nullable=False),
        sa.Column("overlap", sa.String(length=10), nullable=False),
        sa.Column("jitter_seconds", sa.Integer(), nullable=False),
        sa.Column("pause_after", sa.Integer(), nullable=False),
        sa.Column("daily_usd", sa.Float(), nullable=True),
        sa.Column("provider", sa.String(length=100), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("script", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.CheckConstraint("catch_up IN ('skip', 'one', 'all')", name=op.f("ck_task_series_catch_up")),
        sa.CheckConstraint("overlap IN ('skip', 'queue')", name=op.f("ck_task_series_overlap")),
        sa.CheckConstraint("jitter_seconds >= 0", name=op.f("ck_task_series_jitter_seconds")),
        sa.CheckConstraint("pause_after >= 0", name=op.f("ck_task_series_pause_after")),
        sa.CheckConstraint("daily_usd > 0", name=op.f("ck_task_series_daily_usd")),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_task_series_agent_group_id_agent_groups")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_series")),
    )
    op.create_table(
        "rounds",
        sa.Column("name", sa.String(length=50), nullable=False),
        sa.Column("began_at", TIMESTAMP, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_rounds")),
    )
    op.add_column("messages_in", sa.Column("scheduled_for", TIMESTAMP, nullable=True))
    op.add_column("messages_out", sa.Column("scheduled_for", TIMESTAMP, nullable=True))
    op.add_column("messages_out", sa.Column("recurred", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("processes", sa.Column("slots", sa.Integer(), nullable=True))
    op.drop_index("ix_messages_in_due", "messages_in")
    _index("ix_messages_in_due", "messages_in", ["process_after", "session_id"], _DUE_CHATS)
    _index("ix_messages_in_due_tasks", "messages_in", ["process_after", "session_id"], _DUE_TASKS)
    _index("ix_messages_out_repeating", "messages_out", ["id"], _REPEATING)
    _index("ix_sessions_rung", "sessions", ["woken_at"], _RUNG)
    _index("ix_task_series_skip", "task_series", ["id"], _SKIPS)
    _index("ix_messages_out_series", "messages_out", ["series_id", "scheduled_for"], _IN_SERIES)
    for table, column in _NAMES:
        op.create_index(f"ix_{table}_{column}", table, [column])


def downgrade() -> None:
    for table, column in _NAMES:
        op.drop_index(f"ix_{table}_{column}", table)
    op.drop_index("ix_messages_out_series", "messages_out")
    op.drop_index("ix_sessions_rung", "sessions")
    op.drop_index("ix_messages_out_repeating", "messages_out")
    op.drop_index("ix_messages_in_due_tasks", "messages_in")
    op.drop_index("ix_messages_in_due", "messages_in")
    _index("ix_messages_in_due", "messages_in", ["process_after", "session_id"], _PENDING)
    op.drop_column("processes", "slots")
    op.drop_column("messages_out", "recurred")
    op.drop_column("messages_out", "scheduled_for")
    op.drop_column("messages_in", "scheduled_for")
    op.drop_table("rounds")
    op.drop_table("task_series")
