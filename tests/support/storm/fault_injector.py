"""What goes wrong, and when: a fixed plan of deaths over the length of the storm, carried out one by one.

Victims are picked while they do what they are picked for (an agent that runs turns, a deliverer while something is
being sent), and only when they are up: killing what has just been started proves little."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from models import MessageOut
from models.errors import DatabaseDownError
from tests.support.storm.installation import DELIVERY_SECONDS, LEASE_SECONDS, StormFleet, until
from tests.support.storm.scale import Scale

Death = Callable[[], Awaitable[None]]


class FaultInjector:
    def __init__(self, fleet: StormFleet, scale: Scale) -> None:
        self._fleet = fleet
        self._scale = scale
        self._rng = random.Random(scale.seed)
        self._lock = asyncio.Lock()
        self._thawing: list[asyncio.Task[None]] = []
        self.done: Counter[str] = Counter()
        self.log: list[str] = []
        self.fallen: list[str] = []

    def plan(self) -> list[tuple[float, str, Death]]:
        """(when, what, how): the big events at fixed parts of the storm, the kills evenly between."""
        scale = self._scale
        kinds = ["agent"] * 6 + ["delivery"] * 2 + ["messages"] + ["beat"]
        victims = [kinds[(number * 7) % len(kinds)] for number in range(scale.kills)]
        events: list[tuple[float, str, Death]] = [
            (0.20, "flush", self._flush),
            (0.45, "valkey restart", self._restart_valkey),
            (0.60, "postgres restart", self._restart_postgres),
            (0.80, "flush", self._flush),
        ]
        events += [
            (0.02 + 0.95 * n / scale.kills, f"kill {kind}", self._killing(kind)) for n, kind in enumerate(victims)
        ]
        events += [(0.33 + 0.5 * n / scale.deploys, "deploy agent", self._deploy) for n in range(scale.deploys)]
        for number in range(scale.freezes):
            kind = ("agent", "delivery")[number % 2]
            events.append((0.10 + 0.75 * number / scale.freezes, f"freeze {kind}", self._freezing(kind)))
        return sorted(((part * scale.storm_seconds, what, how) for part, what, how in events), key=lambda e: e[:2])

    async def supervise(self) -> None:
        """Until it is cancelled. Not while a process is being ended on purpose: that is awaited where it happens."""
        while True:
            async with self._lock:
                self.fallen += self._fleet.processes.watch()
            await asyncio.sleep(0.5)

    async def inject_faults(self) -> None:
        started = time.monotonic()
        try:
            for at, what, how in self.plan():
                await asyncio.sleep(max(0.0, started + at - time.monotonic()))
                await how()
                self.done[what] += 1
            await asyncio.gather(*self._thawing)
        finally:
            for thaw in self._thawing:
                thaw.cancel()

    @property
    def kills(self) -> int:
        return sum(count for what, count in self.done.items() if what.startswith("kill "))

    def _killing(self, kind: str) -> Death:
        async def kill() -> None:
            name = await self._victim(kind)
            self._note(f"kill -9 {name} (pid {self._fleet.processes.members[name].pid})")
            async with self._lock:
                self._fleet.processes.kill(name)

        return kill

    def _freezing(self, kind: str) -> Death:
        """Frozen past everything it holds, then let go on as if nothing had happened."""
        seconds = (LEASE_SECONDS if kind == "agent" else DELIVERY_SECONDS) + 2

        async def freeze() -> None:
            name = await self._victim(kind)
            self._note(f"freeze {name} for {seconds:g} s")
            self._fleet.processes.freeze(name)
            self._thawing.append(asyncio.create_task(self._thaw(name, seconds)))

        return freeze

    async def _thaw(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._fleet.processes.thaw(name)
        self._note(f"thaw {name}")

    async def _deploy(self) -> None:
        name = await self._victim("agent")
        self._note(f"SIGTERM {name}")
        async with self._lock:
            await asyncio.to_thread(self._terminate, name)
            self._fleet.processes.start(name, "agent")

    def _terminate(self, name: str) -> None:
        process = self._fleet.processes.members[name].process
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    async def _flush(self) -> None:
        self._note("FLUSHALL")
        await asyncio.to_thread(self._fleet.valkey.flush)

    async def _restart_valkey(self) -> None:
        self._note("kill -9 valkey")
        await asyncio.to_thread(self._fleet.valkey.stop, signal.SIGKILL)
        await asyncio.to_thread(self._fleet.valkey.start)

    async def _restart_postgres(self) -> None:
        self._note("SIGQUIT postgres")
        await asyncio.to_thread(self._fleet.postgres.stop, signal.SIGQUIT)
        await asyncio.to_thread(self._fleet.postgres.start)

    async def _victim(self, kind: str) -> str:
        """One that is up and, if it can be had within moments, in the middle of its work.

        The others of its kind that were killed before must be up again: on a slow machine the storm waits for them,
        or it would measure how long a process takes to start."""
        chosen: list[str] = []

        async def up() -> bool:
            members = [
                member for member in self._fleet.processes.members.values() if member.kind == kind and not member.frozen
            ]
            ready = await self._fleet.ready()
            chosen[:] = sorted(member.name for member in members if member.name in ready)
            return len(chosen) == len(members) > 0

        async def busy() -> bool:
            if kind == "agent":
                running = await self._fleet.running_agents()
                working = [name for name in running if name in chosen]
                chosen[:] = working[:1] or chosen
                return bool(working)
            if kind == "delivery":
                try:
                    return bool(await self._fleet.rows(MessageOut, MessageOut.status == "sending"))
                except DatabaseDownError:
                    return False
            return True

        await until(up, 60, f"all {kind} processes to be up")
        await until(busy, 1.5, f"a busy {kind} process", every=0.02, soft=True)
        return self._rng.choice(chosen)

    def _note(self, what: str) -> None:
        self.log.append(f"{time.strftime('%H:%M:%S')} {what}")
