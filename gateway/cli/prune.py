"""`longshore prune`: remove what is old and finished, or keep it in an archive instead."""

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.desk import AsJson, Desk, err, fail, out, print_json, run, shown
from workers.archive import Archive, ArchiveError
from workers.retention import Pruned, Pruning, Terms
from workers.settings import LEAST_KEEP_DAYS, MOST_KEEP_DAYS


def prune(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help="e.g. 90d: what was finished before; else as LONGSHORE_KEEP_DAYS says"),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="keep the rows there, in files; else as LONGSHORE_ARCHIVE says"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count, remove nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what is old and finished, in small batches, while the fleet works. It can be stopped at any time."""
    days = _parse_days(older_than) if older_than is not None else None

    async def command(desk: Desk) -> None:
        set_up = Terms.of(desk.settings)
        terms = Terms(days or set_up.finished_days, set_up.refused_days)
        if terms.finished_days is None:
            fail("nothing says how long rows are kept: give --older-than 90d, or set LONGSHORE_KEEP_DAYS", 2)
        folder = archive or desk.settings.archive
        kept = Archive(folder) if folder is not None else None
        with err.status("looking for what is old …") if not as_json else _Silence() as status:
            pruning = Pruning(desk.db, terms, kept, dry=dry_run, told=lambda pruned: status.update(_progress(pruned)))
            try:
                await pruning.run()
            except ArchiveError as error:
                fail(f"{error}. {_said(pruning.pruned)}; the rest stays")
            except asyncio.CancelledError:
                err.print(f"stopped. {_said(pruning.pruned)}; run it again for the rest")
                raise
        if as_json:
            print_json(_as_json(terms, pruning.pruned, kept, dry_run))
        else:
            _print(pruning.pruned, kept, dry_run)

    run(command)


class _Silence:
    """In place of a line that tells how far it is."""

    def __enter__(self) -> "_Silence":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was shown."""

    def update(self, status: str) -> None:
        """Nobody reads it."""


def _parse_days(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})d?", text.strip(), re.ASCII)
    if found is None:
        fail(f"--older-than {text!r} is not a number of days; write it like 90d", 2)
    days = int(found[1])
    if days < LEAST_KEEP_DAYS:
        why = "platforms repeat messages for days, and are recognised by what is still there"
        fail(f"--older-than {text} is too little: at least {LEAST_KEEP_DAYS} days must stay, since {why}", 2)
    if days > MOST_KEEP_DAYS:
        fail(f"--older-than {text} is too much: at most {MOST_KEEP_DAYS} days", 2)
    return days


def _progress(pruned: Pruned) -> str:
    return f"{pruned.total:,} rows, {pruned.sessions:,} sessions looked through …"


def _said(pruned: Pruned) -> str:
    return f"{pruned.total:,} row{'s' * (pruned.total != 1)} removed"


def _print(pruned: Pruned, kept: Archive | None, dry: bool) -> None:
    assert pruned.before is not None
    what = f"finished before {pruned.before:%Y-%m-%d %H:%M} (UTC)"
    if not pruned.total:
        out.print(f"nothing to remove: [green]nothing was {what}[/green]")
        return
    for table, count in sorted(pruned.rows.items(), key=lambda item: -item[1]):
        if count:
            out.print(f"{count:>12,}  {table}")
    verb = "would be removed" if dry else "removed"
    out.print(f"{pruned.total:>12,}  rows {verb}, {what}")
    if kept is not None and not dry:
        out.print(f"[dim]kept in {shown(kept.folder)}, {kept.files:,} file{'s' * (kept.files != 1)}[/dim]")
    if pruned.left:
        out.print(f"[yellow]{pruned.left} batch(es) were just in use and stay: run it again[/yellow]")


def _as_json(terms: Terms, pruned: Pruned, kept: Archive | None, dry: bool) -> dict[str, Any]:
    return {
        "older_than_days": terms.finished_days,
        "before": pruned.before,
        "dry_run": dry,
        "rows": {table: count for table, count in sorted(pruned.rows.items()) if count},
        "total": pruned.total,
        "left": pruned.left,
        "archive": None if kept is None or dry else {"folder": str(kept.folder), "files": kept.files},
    }
