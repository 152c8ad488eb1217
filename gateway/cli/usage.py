"""`longshore usage`: what model calls took and cost, and how much of today's budgets is left."""

from datetime import UTC, date, datetime
from typing import Annotated

import typer
from rich.table import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.cli.desk import AsJson, Desk, agent_id, fail, out, print_json, run, shown
from gateway.figures import bar, money
from models.lookup import short
from models.spending import (
    DIMENSIONS,
    BudgetState,
    Spent,
    budget_states,
    start_of_day,
    usage_by,
    usage_in_total,
)

DEFAULT_DAYS = 7
_NEARLY = 0.8  # of a budget: shown in yellow from here on


def usage(
    by: Annotated[str, typer.Option(help=f"one or more of {', '.join(DIMENSIONS)}, with commas")] = "agent,model",
    days: Annotated[
        int | None, typer.Option(min=1, max=3650, help=f"today and the days before; else {DEFAULT_DAYS}")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="from this day on (UTC)")] = None,
    group: Annotated[str | None, typer.Option(help="only this agent")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="rows to show; the total has all")] = 50,
    as_json: AsJson = False,
) -> None:
    """Tokens, calls and cost, the dearest first; and today's budgets."""
    dimensions = parse_dimensions(by)
    if days is not None and since is not None:
        fail("give --days or --since, not both", 2)
    first_day = _parse_day(since) if since is not None else None

    async def command(desk: Desk) -> None:
        async def look(conn: AsyncConnection) -> tuple[datetime, list[Spent], Spent, list[BudgetState]]:
            chosen = await agent_id(conn, group) if group is not None else None
            start = first_day or await start_of_day(conn, (days or DEFAULT_DAYS) - 1)
            rows = await usage_by(conn, dimensions, start, agent_group_id=chosen, limit=limit + 1)
            total = await usage_in_total(conn, start, agent_group_id=chosen)
            return start, rows, total, await budget_states(conn, chosen)

        start, rows, total, budgets = await desk.db.read(look)
        if as_json:
            print_json(_as_json(dimensions, start, rows[:limit], total, budgets))
        else:
            _print(dimensions, start, rows[:limit], total, budgets, cut=len(rows) > limit)

    run(command)


def parse_dimensions(by: str) -> list[str]:
    """Names with commas between, each once, in the order given."""
    names = [name.strip() for name in by.split(",") if name.strip()]
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown or not names:
        what = f"--by cannot be {', '.join(map(repr, unknown))}" if unknown else "--by is empty"
        fail(f"{what}; it takes: {', '.join(DIMENSIONS)}", 2)
    return list(dict.fromkeys(names))


def _parse_day(text: str) -> datetime:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        fail(f"--since {text!r} is not a day; write it like 2026-01-31", 2)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _print(
    dimensions: list[str], start: datetime, rows: list[Spent], total: Spent, budgets: list[BudgetState], *, cut: bool
) -> None:
    if not total.calls:
        out.print(f"no model was asked since {start:%Y-%m-%d} (UTC)")
    else:
        out.print(f"[dim]since {start:%Y-%m-%d} (UTC), the dearest first[/dim]")
        out.print(_table(dimensions, rows, total))
        if cut:
            out.print("[dim]there are more rows, and the total has them all: --limit shows them[/dim]")
        if total.unpriced_calls:
            calls = "1 call" if total.unpriced_calls == 1 else f"{total.unpriced_calls:,} calls"
            out.print(f"[yellow]?[/yellow] [dim]nobody knows the price of {calls}: they are not in the cost[/dim]")
    if budgets:
        out.print("\n[bold]Today's budgets[/bold] [dim](UTC)[/dim]")
        table = Table(box=None, show_header=False)
        for state in budgets:
            table.add_row(*budget_cells(state))
        out.print(table)


def _table(dimensions: list[str], rows: list[Spent], total: Spent) -> Table:
    table = Table(box=None, header_style="dim", show_footer=True, footer_style="bold")
    for position, name in enumerate(dimensions):
        table.add_column(name, footer="" if position else "total", overflow="fold")
    figures = [("calls", "calls"), ("in", "read_tokens"), ("cached", "cache_read_tokens")]
    if total.cache_write_tokens:
        figures.append(("written", "cache_write_tokens"))
    figures.append(("out", "output_tokens"))
    for name, field in figures:
        table.add_column(name, footer=f"{getattr(total, field):,}", justify="right", no_wrap=True)
    table.add_column("cost", footer=_cost(total), justify="right", no_wrap=True)
    for row in rows:
        keys = [_key(name, value) for name, value in zip(dimensions, row.key, strict=True)]
        table.add_row(*keys, *(f"{getattr(row, field):,}" for _, field in figures), _cost(row))
    return table


def _key(dimension: str, value: str | None) -> str:
    if value is None:
        return "[dim]unknown[/dim]"
    return shown(short(value) if dimension in ("session", "turn") else value)


def _cost(row: Spent) -> str:
    """With a mark if some of it has no price."""
    mark = "[yellow]+?[/yellow]" if row.unpriced_calls and row.cost_usd is not None else ""
    return money(row.cost_usd if row.calls else 0.0) + mark


def budget_cells(state: BudgetState) -> tuple[str, str, str]:
    used = state.spent_usd + state.held_usd
    share = used / state.cap_usd if state.cap_usd > 0 else 1.0
    colour = "red" if share >= 1 else "yellow" if share >= _NEARLY else "green"
    who = shown(state.folder) + (f" [dim]for {shown(state.user_id)}[/dim]" if state.user_id else "")
    who += f" [dim]task {shown(short(state.series_id))}[/dim]" if state.series_id else ""
    held = f", {money(state.held_usd)} held for calls under way" if state.held_usd else ""
    rest = "[red]nothing left[/red]" if share >= 1 else f"{money(state.left_usd)} left"
    words = f"{money(state.spent_usd)} of {money(state.cap_usd)} spent{held}, {rest}"
    return who, f"[{colour}]{bar(used, state.cap_usd)}[/{colour}]", words


def _as_json(
    dimensions: list[str], start: datetime, rows: list[Spent], total: Spent, budgets: list[BudgetState]
) -> dict[str, object]:
    def figures(row: Spent) -> dict[str, object]:
        return {name: value for name, value in vars(row).items() if name != "key"}

    return {
        "since": start,
        "rows": [dict(zip(dimensions, row.key, strict=True)) | figures(row) for row in rows],
        "total": figures(total),
        "budgets": [vars(state) | {"left_usd": state.left_usd} for state in budgets],
    }
