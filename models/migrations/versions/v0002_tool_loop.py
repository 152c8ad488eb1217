"""The tool loop: follow-ups, failover, compaction, budgets

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    # In plain SQL: both databases add a column with its check this way, and SQLite need not copy the table. The
    # defaults let the release before this one go on writing rows.
    for table, strategies in (
        ("messaging_group_agents", "'enqueue', 'interrupt', 'reject', 'separate'"),
        ("messages_in", "'enqueue', 'interrupt', 'separate'"),
    ):
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN follow_up VARCHAR(10) DEFAULT 'enqueue' NOT NULL "
            f"CONSTRAINT ck_{table}_follow_up CHECK (follow_up IN ({strategies}))"
        )
    op.add_column("turns", sa.Column("tried", JSON, nullable=True))
    op.add_column("turns", sa.Column("waiting_since", TIMESTAMP, nullable=True))
    op.add_column("provider_health", sa.Column("failures", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "compactions",
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("through_turn", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("archive", sa.String(length=300), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_compactions_session_id_sessions")),
        sa.PrimaryKeyConstraint("session_id", "through_turn", name=op.f("pk_compactions")),
    )
    op.create_table(
        "budget_days",
        sa.Column("agent_group_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("day", sa.String(length=10), nullable=False),
        sa.Column("spent_usd", sa.Float(), nullable=False),
        sa.Column("reserved_usd", sa.Float(), nullable=False),
        sa.Column("extra_usd", sa.Float(), nullable=False),
        sa.Column("approval_id", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_budget_days_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(["approval_id"], ["approvals.id"], name=op.f("fk_budget_days_approval_id_approvals")),
        sa.PrimaryKeyConstraint("agent_group_id", "user_id", "day", name=op.f("pk_budget_days")),
    )
    op.create_table(
        "reservations",
        sa.Column("step_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("agent_group_id", sa.String(length=36), nullable=False),
        sa.Column("turn_id", sa.String(length=36), nullable=False),
        sa.Column("day", sa.String(length=10), nullable=False),
        sa.Column("usd", sa.Float(), nullable=False),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_reservations_agent_group_id_agent_groups")
        ),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_reservations_turn_id_turns")),
        sa.PrimaryKeyConstraint("step_id", "user_id", name=op.f("pk_reservations")),
    )
    op.create_index("ix_reservations_turn_id", "reservations", ["turn_id"])


def downgrade() -> None:
    for table in ("reservations", "budget_days", "compactions"):
        op.drop_table(table)
    for table, column in (("provider_health", "failures"), ("turns", "waiting_since"), ("turns", "tried")):
        op.drop_column(table, column)
    for table in ("messages_in", "messaging_group_agents"):
        op.drop_column(table, "follow_up")
