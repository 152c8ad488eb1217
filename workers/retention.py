"""Removing what is old and finished, while the fleet works: batch by batch, each kept in the archive first if there is
one, with a rest after each. It can stop between any two of them, and goes on from the beginning the next time."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog
from sqlalchemy.exc import IntegrityError

from models.database import Database
from models.pruning import (
    Batch,
    ChangedError,
    Dates,
    Rows,
    Slice,
    close_replays,
    dates,
    read,
    remove,
    sessions_with_old,
    slices,
)
from models.retention import (
    APPROVALS,
    BUDGET_DAYS,
    BY_TURN,
    CARDS,
    COMPACTIONS,
    EVENTS,
    INVITATIONS,
    MESSAGES_IN,
    MESSAGES_OUT,
    PROGRAM_STATES,
    QUESTIONS,
    REJECTED,
    SERIES,
    STEPS,
    TRANSCRIPTS,
    TURNS,
    WRONG_CODES,
    Rule,
)
from models.rounds import begin_round
from workers.archive import Archive, ArchiveError
from workers.scratch import tidy_scratch
from workers.settings import Settings
from workers.workflows.tidying import tidy_workflows

log = structlog.get_logger()

BATCH_ROWS: Final = 800
# A little less than an hour, since rings do not come to the second.
ROUND_SECONDS: Final = 3500.0
LONGEST_SECONDS: Final = 900.0
_REFUSED: Final = (REJECTED, WRONG_CODES)
# What hangs on a message goes before it.
_BESIDES: Final = (INVITATIONS, BUDGET_DAYS, QUESTIONS, APPROVALS, CARDS)
_OF_A_SESSION: Final = (EVENTS, MESSAGES_OUT, MESSAGES_IN, TRANSCRIPTS, COMPACTIONS, PROGRAM_STATES)


@dataclass(frozen=True)
class Terms:
    """How many days what is finished, and what was refused, is kept. None: for ever."""

    finished_days: int | None
    refused_days: int | None

    @classmethod
    def of(cls, settings: Settings) -> "Terms":
        return cls(settings.keep_days or None, settings.keep_refused_days or None)


@dataclass
class Pruned:
    """`rows`: how many of each table are gone (or, when only looked for, would be). `left`: batches somebody was just
    working on, for the next time. `whole`: everything has been looked at."""

    before: datetime | None = None
    rows: Counter[str] = field(default_factory=Counter)
    left: int = 0
    sessions: int = 0
    whole: bool = False

    @property
    def total(self) -> int:
        return sum(self.rows.values())


class _OutOfTimeError(Exception):
    """A way out of the walk."""


class Pruning:
    """One walk through everything. `seconds`: how long it may take. `told`: called after each batch."""

    def __init__(
        self,
        db: Database,
        terms: Terms,
        archive: Archive | None = None,
        *,
        dry: bool = False,
        seconds: float | None = None,
        told: Callable[[Pruned], None] = lambda _: None,
    ) -> None:
        self.pruned = Pruned()
        self._db = db
        self._terms = terms
        self._archive = archive
        self._dry = dry
        self._until = None if seconds is None else time.monotonic() + seconds
        self._told = told
        self._batch = Batch()

    async def run(self) -> Pruned:
        """Raises ArchiveError, with nothing removed that is not kept."""
        if self._archive is not None and not self._dry:
            await asyncio.to_thread(self._archive.check)
        terms = self._terms
        at = await self._db.read(lambda conn: dates(conn, terms.finished_days, terms.refused_days))
        self.pruned.before = at.finished
        try:
            if at.refused is not None:
                await self._tables(_REFUSED, at)
            if at.finished is not None:
                await self._tables(_BESIDES, at)
                if not self._dry:
                    await self._db.transact(lambda conn: close_replays(conn, at))
                await self._sessions(at)
                await self._tables((SERIES,), at)
            self.pruned.whole = True
        except _OutOfTimeError:
            pass
        return self.pruned

    async def _tables(self, rules: Sequence[Rule], at: Dates) -> None:
        for rule in rules:
            async for found in slices(self._db, rule, at):
                await self._add(found, at)
            await self._remove(at)

    async def _sessions(self, at: Dates) -> None:
        async for some in sessions_with_old(self._db, at):
            if some.with_old:
                await self._conversations(some.with_old, at)
            self.pruned.sessions += some.seen
            self._told(self.pruned)
            self._check_time()

    async def _conversations(self, sessions: list[str], at: Dates) -> None:
        """Turn by turn, in the order of their events; then what is of no turn, or was longer in use than its turn."""
        counted: set[str] = set()
        for rule in _OF_A_SESSION:
            async for found in slices(self._db, rule, at, sessions):
                await self._whole_turns(found.turns - counted, at)
                if self._dry:  # else they are gone
                    counted |= found.turns
                await self._add(found, at)
        await self._remove(at)

    async def _whole_turns(self, turns: Set[str], at: Dates) -> None:
        """What belongs to turns besides what they were found by."""
        if not turns:
            return
        async for found in slices(self._db, STEPS, at, turns):
            await self._add(found, at)
        if self._dry:  # messages are counted where they are found by themselves
            async for found in slices(self._db, TURNS, at, turns):
                await self._add(found, at)
            return
        for rule in (MESSAGES_OUT, MESSAGES_IN):
            async for found in slices(self._db, rule, at, turns, BY_TURN):
                await self._add(found, at)

    async def _add(self, part: Slice, at: Dates) -> None:
        if self._dry:
            self.pruned.rows[part.rule.table.name] += part.count
            return
        self._batch.add(part)
        if self._batch.count >= BATCH_ROWS:
            await self._remove(at)

    async def _remove(self, at: Dates) -> None:
        batch, self._batch = self._batch, Batch()
        if not batch.slices:
            return
        if batch.turns:
            async for part in slices(self._db, TURNS, at, batch.turns):
                batch.add(part)
        kept = await self._keep(batch) if self._archive is not None else None
        began = time.monotonic()
        try:
            gone = await self._db.transact(lambda conn: remove(conn, batch, kept))
        except (ChangedError, IntegrityError) as error:
            # Somebody has just changed one of them, or written something that names it.
            self.pruned.left += 1
            log.info("prune.left", rows=batch.count, why=str(error).splitlines()[0])
        else:
            self.pruned.rows += gone
        self._told(self.pruned)
        self._check_time()
        # Others get their turn, also where there is one writer at a time.
        await asyncio.sleep(time.monotonic() - began)

    async def _keep(self, batch: Batch) -> Rows:
        assert self._archive is not None
        kept = await self._db.read(lambda conn: read(conn, batch))
        if kept:
            lines = [(str(name[0]), row._asdict()) for name, row in kept.items()]
            await asyncio.to_thread(self._archive.write, lines)
        return kept

    def _check_time(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise _OutOfTimeError


async def prune_round(db: Database, settings: Settings) -> Pruned:
    """What the settings say, for a while; nothing if another has begun within the hour. What is left then is for the
    next round."""
    if not await db.transact(lambda conn: begin_round(conn, "prune", ROUND_SECONDS)):
        return Pruned()
    archive = Archive(settings.archive) if settings.archive is not None else None
    pruning = Pruning(db, Terms.of(settings), archive, seconds=LONGEST_SECONDS)
    try:
        await pruning.run()
    except ArchiveError as error:
        log.error("prune.stopped", why=str(error))
    await tidy_scratch(db, settings.workspace_root)
    await tidy_workflows(db, settings.workspace_root)
    done = pruning.pruned
    if done.total:
        log.info("prune.removed", total=done.total, whole=done.whole, rows=dict(done.rows))
    return done
