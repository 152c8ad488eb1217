"""Workflows: work of several agents in stages

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TIMESTAMP = sa.DateTime(timezone=True)
ID = sa.String(length=36)
JSON = sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), "postgresql")

_RUNNING = sa.text("status = 'running'")
_OF_WORKFLOWS = sa.text("workflow_id IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "workflows",
        sa.Column("id", ID, nullable=False),
        sa.Column("kind", sa.String(length=30), nullable=False),
        sa.Column("agent_group_id", ID, nullable=False),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("result", JSON, nullable=True),
        sa.Column("started_by", sa.String(length=255), nullable=False),
        sa.Column("budget_usd", sa.Float(), nullable=True),
        sa.Column("deadline_at", TIMESTAMP, nullable=False),
        sa.Column("rung_at", TIMESTAMP, nullable=True),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("ended_at", TIMESTAMP, nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'completed', 'failed', 'cancelled')", name=op.f("ck_workflows_status")
        ),
        sa.CheckConstraint("budget_usd > 0", name=op.f("ck_workflows_budget_usd")),
        sa.ForeignKeyConstraint(
            ["agent_group_id"], ["agent_groups.id"], name=op.f("fk_workflows_agent_group_id_agent_groups")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflows")),
    )
    op.create_index(op.f("ix_workflows_agent_group_id"), "workflows", ["agent_group_id"])
    op.create_index(
        "ix_workflows_running", "workflows", ["deadline_at"], postgresql_where=_RUNNING, sqlite_where=_RUNNING
    )
    op.create_table(
        "workflow_stages",
        sa.Column("id", ID, nullable=False),
        sa.Column("workflow_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("task", sa.String(length=40), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("session_id", ID, nullable=False),
        sa.Column("provider", sa.String(length=100), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("input", JSON, nullable=False),
        sa.Column("output", JSON, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("turn_id", ID, nullable=True),
        sa.Column("started_at", TIMESTAMP, nullable=False),
        sa.Column("ended_at", TIMESTAMP, nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'completed', 'failed', 'cancelled', 'replaced')",
            name=op.f("ck_workflow_stages_status"),
        ),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_workflow_stages_workflow_id_workflows")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_workflow_stages_session_id_sessions")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_stages")),
        sa.UniqueConstraint("workflow_id", "number", name=op.f("uq_workflow_stages_workflow_id_number")),
        sa.UniqueConstraint(
            "workflow_id",
            "kind",
            "task",
            "round",
            "attempt",
            name=op.f("uq_workflow_stages_workflow_id_kind_task_round_attempt"),
        ),
    )
    op.create_index(
        "ix_workflow_stages_running",
        "workflow_stages",
        ["workflow_id"],
        postgresql_where=_RUNNING,
        sqlite_where=_RUNNING,
    )
    op.create_index("ix_workflow_stages_session_id", "workflow_stages", ["session_id"])
    op.add_column("sessions", sa.Column("workflow_id", ID, nullable=True))
    op.create_index(
        "ix_sessions_workflow_id",
        "sessions",
        ["workflow_id"],
        postgresql_where=_OF_WORKFLOWS,
        sqlite_where=_OF_WORKFLOWS,
    )


def downgrade() -> None:
    op.drop_index("ix_sessions_workflow_id", "sessions")
    op.drop_column("sessions", "workflow_id")
    op.drop_index("ix_workflow_stages_session_id", "workflow_stages")
    op.drop_index("ix_workflow_stages_running", "workflow_stages")
    op.drop_table("workflow_stages")
    op.drop_index("ix_workflows_running", "workflows")
    op.drop_index(op.f("ix_workflows_agent_group_id"), "workflows")
    op.drop_table("workflows")
