"""`longshore foreman roles`: who would plan, build and review now, how fit everybody else is, and why."""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from gateway.cli.desk import AsJson, Desk, out, print_json, run, shown
from workers.refusals import RefusedError
from workers.workflows.candidates import Candidate, candidates
from workers.workflows.fitness import ROLES, fitness_table
from workers.workflows.roles import choose


def roles(as_json: AsJson = False) -> None:
    """Show who would plan, build and review now, and how fit each provider is for it."""

    async def command(desk: Desk) -> None:
        found = await candidates(desk)
        chosen = _chosen(found)
        if as_json:
            print_json({"table": [asdict(fit) for fit in fitness_table(found)], "chosen": chosen})
            return
        out.print(_table(found))
        if "refused" in chosen:
            out.print(f"\n[yellow]nobody would be chosen now[/yellow]: {shown(chosen['refused'])}", soft_wrap=True)
            return
        out.print("\nnow it would be:")
        for reason in chosen["reasons"]:
            out.print(f"  {shown(reason)}", soft_wrap=True)
        for note in chosen["notes"]:
            out.print(f"  [yellow]{shown(note)}[/yellow]", soft_wrap=True)

    run(command)


def _chosen(found: list[Candidate]) -> dict[str, Any]:
    try:
        return asdict(choose(found))
    except RefusedError as refused:
        return {"refused": str(refused)}


def _table(found: list[Candidate]) -> Table:
    """Points, and what speaks for it; else what speaks against it."""
    table = Table(box=None, header_style="dim")
    for name in ("role", "provider", "points", "why"):
        table.add_column(name, no_wrap=name != "why", justify="right" if name == "points" else "left")
    rows = fitness_table(found)
    for role in ROLES:
        for number, fit in enumerate(fit for fit in rows if fit.role == role):
            points = "[dim]-[/dim]" if fit.score is None else f"[green]{fit.score}[/green]"
            why = shown(fit.why) if fit.score is not None else f"[dim]{shown(fit.why)}[/dim]"
            table.add_row(role if number == 0 else "", shown(fit.provider), points, why)
    return table
