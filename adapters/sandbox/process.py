"""A program under way and the watch over it: memory, disk, its end. How it is held is the business of a Grip.

Stopping goes in bounded steps (close stdin, wait, TERM, wait, KILL, reap), and goes on to the end even if whoever asked
for it is cancelled."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, Protocol

from adapters.sandbox.disk import Disk
from adapters.sandbox.launch import Pipes
from adapters.sandbox.looking import look
from adapters.sandbox.memory import children, exceeds, family, living_in_group, living_in_session
from adapters.sandbox.port import Command
from adapters.uninterrupted import uninterrupted

WATCH_SECONDS = 0.25
# So long a program may take to end by itself when its input has.
GRACE_SECONDS = 1.0
# After KILL; only a process in an uninterruptible state or a container engine that hangs takes longer.
KILL_SECONDS = 10.0
_LOOK_SECONDS = 0.01


class Grip(Protocol):
    """How a started program, with all it has started, is held."""

    def pids(self) -> Sequence[int]:
        """Those whose memory is counted; none if somebody else limits it."""

    async def terminate(self) -> None: ...

    async def kill(self) -> None:
        """No process of it may survive this."""

    async def gone(self) -> None:
        """Returns when nothing of it is left, after its first process has ended."""

    def limit_of(self, exit_code: int) -> Literal["memory"] | None:
        """The limit that somebody else ended it for, as far as its exit code says."""


class Supervised:
    """The SandboxProcess of all sandboxes. `held` is closed when the program is gone."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        pipes: Pipes,
        command: Command,
        grip: Grip,
        disk: Disk,
        held: AsyncExitStack,
    ) -> None:
        self._transport = transport
        self._pipes = pipes
        self._command = command
        self.grip = grip
        self._disk = disk
        self._held = held
        self._passed: Literal["memory", "disk"] | None = None
        self._stopping: asyncio.Task[None] | None = None
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        assert pipes.stderr is not None
        self.stdin: asyncio.StreamWriter = pipes.stdin
        self.stdout: asyncio.StreamReader = pipes.stdout
        self.stderr: asyncio.StreamReader = pipes.stderr
        self._watch = asyncio.create_task(self._keep_watch())

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    @property
    def passed(self) -> Literal["memory", "disk"] | None:
        return self._passed

    def resize(self, rows: int, columns: int) -> None:
        if self._pipes.terminal is not None:
            self._pipes.terminal.resize(rows, columns)

    async def wait(self) -> int:
        await asyncio.shield(self._watch)
        return self._exit_code()

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    def _exit_code(self) -> int:
        """Ended by a signal is 128 and the signal's number, as shells say it."""
        code = self._transport.get_returncode()
        assert code is not None
        return code if code >= 0 else 128 - code

    async def _keep_watch(self) -> None:
        command, limits = self._command, self._command.limits
        folders = [command.workspace, *([command.home] if command.home else ())]
        try:
            while not await self._ended_within(WATCH_SECONDS):
                pids = await look(self.grip.pids)
                if await look(exceeds, pids, limits.memory_bytes):
                    self._passed = "memory"
                elif any([await self._disk.exceeds(folder, limits.disk_bytes, pids) for folder in folders]):
                    self._passed = "disk"
                if self._passed is not None:
                    break
        except BaseException:
            # A program without a watch would have no limits.
            await self._end_for_good()
            raise
        else:
            if self._passed is not None:
                await self._end_for_good()
            await self.grip.gone()
            if self._passed is None and self._stopping is None:
                self._passed = self.grip.limit_of(self._exit_code())
        finally:
            await self._held.aclose()

    async def _stop(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.stdin.close()
        if not await self._ended_within(GRACE_SECONDS):
            await self.grip.terminate()
            if not await self._ended_within(self._command.parting_seconds):
                await self._end_for_good()
        # Its watch reports to wait(); here it only has to be over.
        await asyncio.wait({self._watch})
        # What a grandchild outside our reach still holds open must not keep our ends open.
        self._transport.close()

    async def end(self) -> None:
        """At once, without being asked."""
        await self._end_for_good()
        await self.stop()

    async def _end_for_good(self) -> None:
        await self.grip.kill()
        if not await self._ended_within(KILL_SECONDS):
            self._transport.kill()
            await self._ended_within(KILL_SECONDS)

    async def _ended_within(self, seconds: float) -> bool:
        await asyncio.wait({self._pipes.exited}, timeout=seconds)
        return self._pipes.exited.done()


async def whole(start: Coroutine[Any, Any, Supervised]) -> Supervised:
    """A start that is cancelled comes to its end, and then what was started does. Cut off in the middle, asyncio may
    wait for ever for a child whose pipes it has not opened yet, and bwrap leave half a sandbox that nobody finds."""
    starting = asyncio.ensure_future(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await uninterrupted(_undo(starting))
        raise


async def _undo(starting: "asyncio.Task[Supervised]") -> None:
    await asyncio.wait({starting})
    if starting.exception() is None:
        await starting.result().end()


class NamespaceGrip:
    """A pid namespace, held by its pid 1: nothing in it survives that one's end.

    `keeper` is our child, the bwrap that waits outside. A pidfd keeps meaning the same process when numbers are used
    again."""

    def __init__(self, keeper: int, first: int, held: AsyncExitStack) -> None:
        self._keeper = keeper
        self._first = first
        self._pidfd: int | None = None
        # Whoever has ended already has nothing to hold.
        with contextlib.suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(first)
            held.callback(os.close, self._pidfd)

    def pids(self) -> Sequence[int]:
        return family(self._keeper)

    async def terminate(self) -> None:
        """To the program, not to pid 1 or bwrap, whose end would be everybody's."""
        for pid in children(self._first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    async def kill(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def gone(self) -> None:
        """bwrap ends with the program; those it has left behind are killed by the kernel a moment later."""
        if self._pidfd is None:
            return
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pidfd, over.set)
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await over.wait()
        except TimeoutError:
            await self.kill()
        finally:
            loop.remove_reader(self._pidfd)

    def limit_of(self, exit_code: int) -> Literal["memory"] | None:
        return None


class GroupGrip:
    """A process group, and at a terminal the whole session. Whoever leaves it (setsid) is not held: only for programs
    that nobody confines."""

    def __init__(self, leader: int, *, session: bool = False) -> None:
        self._leader = leader
        self._session = session

    def pids(self) -> Sequence[int]:
        return family(self._leader)

    async def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def gone(self) -> None:
        """The leader's children may go on in the background; they end with it."""
        self._signal(signal.SIGKILL)
        for _ in range(round(KILL_SECONDS / _LOOK_SECONDS)):
            if not self._members():
                break
            await asyncio.sleep(_LOOK_SECONDS)

    def limit_of(self, exit_code: int) -> Literal["memory"] | None:
        return None

    def _members(self) -> bool:
        """Whether anybody lives in the group. The dead whom nobody has reaped are still in it for killpg."""
        if self._session:
            return any(living_in_session(self._leader))
        try:
            os.killpg(self._leader, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return any(living_in_group(self._leader))

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)
        for pid in living_in_session(self._leader) if self._session else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
