"""`longshore up`: everything in one terminal. No key, no root, no Docker; Ctrl-C stops all; nothing is forgotten."""

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from redis.exceptions import RedisError

from adapters.providers.cli.installation import is_at_hand
from adapters.providers.keys import NO_KEY_NEEDED, provider_with_key
from adapters.registry import Registry
from adapters.station import ProgramProvider
from gateway.assistant import ensure_assistant, ensure_instructions
from gateway.cli.desk import Desk, fail, out, shown
from gateway.cli.flower import PORT as FLOWER_PORT
from gateway.cli.flower import USER as FLOWER_USER
from gateway.cli.flower import flower_env, password_file
from gateway.cli.gateway import PORT as GATEWAY_PORT
from gateway.cli.stream import EventPrinter
from gateway.cli.token import OPERATOR, sign_in_link
from gateway.cli.welcome import welcome
from gateway.demo import ensure_demo
from gateway.doctor import examine_sandbox
from gateway.embedded import EmbeddedValkey, announce, free_port, withdraw
from gateway.supervisor import Supervisor
from models import schema
from models.database import database_url
from models.database import shown as shown_address
from models.errors import StoreError
from models.fleet import living_processes
from workers.bells import agent_queue
from workers.events import Follower, redis_client
from workers.intake.listening import listening_channels
from workers.logs import configure_logs
from workers.settings import Settings, SettingsError, load_settings

LEASE_SECONDS = "10"
PROGRAMS = 2  # CLI agents at once: each takes hundreds of megabytes
START_SECONDS = 60
STOP_SECONDS = 45  # the workers' grace, their clean-up and a little more


def up(
    concurrency: Annotated[int, typer.Option("-c", help="sessions at once", min=1, max=5000)] = 100,
    flower: Annotated[bool, typer.Option("--flower/--no-flower", help="Celery's own view in the browser")] = True,
) -> None:
    """Run the whole fleet in this terminal: broker, worker, delivery, beat, gateway, Flower, and a demo agent."""
    try:
        settings = load_settings()
    except SettingsError as error:
        fail(str(error))
    configure_logs("WARNING", as_json=False)
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.geteuid() == 0:
        _let_in(settings)
    with _alone(settings.home):
        try:
            asyncio.run(_Up(settings, concurrency, flower).run())
        except StoreError as error:
            fail(str(error))


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    with (home / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fail(f"another `longshore up` runs in this folder ({home.resolve()})")
        withdraw(home)  # left by one that was killed
        yield


def _let_in(settings: Settings) -> None:
    """Root's agents run their programs as another user, who must be able to come to their folders and to nothing else
    in here: everything we make from now on is closed to others but those two folders, which can be passed through."""
    os.umask(0o077)
    settings.workspace_root.mkdir(parents=True, exist_ok=True)
    for folder in (settings.home, settings.workspace_root):
        folder.chmod(0o711)


class _Up:
    def __init__(self, settings: Settings, concurrency: int, flower: bool) -> None:
        self._given = settings
        self._home = settings.home
        self._concurrency = concurrency
        self._flower = flower
        self._port = free_port(GATEWAY_PORT)
        self._supervisor = Supervisor(self._home / "logs", self._told_of_death)
        self._printer = EventPrinter(out)

    async def run(self) -> None:
        stop = asyncio.Event()

        def told_to_stop() -> None:
            if stop.is_set():
                self._supervisor.hurry()
            stop.set()

        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sig, told_to_stop)
        out.print("[bold]Longshore[/bold] [dim]- a fleet for agents. Ctrl-C stops everything.[/dim]\n")
        work = asyncio.create_task(self._work())
        waiting = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, waiting):
                task.cancel()
            await asyncio.gather(work, waiting, return_exceptions=True)
            await self._stop()

    async def _work(self) -> None:
        settings = await self._start_broker()
        await asyncio.to_thread(schema.migrate, settings.database_url)
        self._say("database", shown_address(database_url(settings.database_url)))
        desk = Desk(settings)
        try:
            link = await sign_in_link(desk, settings.public_url)
            is_new = await desk.db.transact(lambda conn: ensure_demo(conn, OPERATOR))
            if settings.default_provider != NO_KEY_NEEDED:
                await desk.db.transact(ensure_assistant)
                await asyncio.to_thread(ensure_instructions, settings.workspace_root)
            self._start_fleet(desk)
            await self._wait_for_fleet(desk)
            out.print(f"\n[bold]Console[/bold]   {link}", soft_wrap=True)
            out.print("[dim]          signs your browser in, once; for another link: longshore console[/dim]")
            await welcome(desk, self._printer, is_new=is_new)
            await self._watch(desk)
        finally:
            await desk.close()

    async def _start_broker(self) -> Settings:
        """Use what the environment names; bring up what it does not."""
        changes: dict[str, str] = {}
        if not os.environ.get("DEFAULT_PROVIDER"):
            changes["default_provider"] = provider_with_key()
        if not os.environ.get("REDIS_URL"):
            valkey = EmbeddedValkey(self._home)
            changes["redis_url"] = valkey.url
            self._supervisor.start("valkey", valkey.command(), {"PATH": os.environ.get("PATH", "")})
            await _until_redis_answers(valkey.url)
            self._say("broker", f"Valkey on 127.0.0.1:{valkey.port}, append-only file in {self._home}/valkey")
        if not self._given.public_url:
            changes["public_url"] = f"http://127.0.0.1:{self._port}"
        settings = self._given.model_copy(update=changes)
        announce(
            self._home,
            database_url=_absolute(settings.database_url),
            redis_url=settings.redis_url,
            default_provider=settings.default_provider,
            public_url=settings.public_url,
        )
        return settings

    def _env(self, settings: Settings) -> dict[str, str]:
        return os.environ | {
            "DATABASE_URL": settings.database_url,
            "REDIS_URL": settings.redis_url,
            "DEFAULT_PROVIDER": settings.default_provider,
            "LONGSHORE_HOME": str(self._home),
            # One machine, one watcher: a dead worker's turns may go on sooner than in a fleet.
            "LONGSHORE_LEASE_SECONDS": os.environ.get("LONGSHORE_LEASE_SECONDS", LEASE_SECONDS),
        }

    def _start_fleet(self, desk: Desk) -> None:
        env = self._env(desk.settings)
        longshore = [sys.executable, "-m", "gateway.cli"]
        celery = [sys.executable, "-m", "celery", "-A", "workers.app"]
        worker = [*celery, "worker", "--without-gossip", "--without-mingle"]
        providers = Registry().providers
        drivers = providers.working.items()
        programs = [name for name, one in drivers if isinstance(one, ProgramProvider) and is_at_hand(one)]
        if not any(isinstance(one, ProgramProvider) and one.needs.program for name, one in drivers if name in programs):
            programs = []  # nothing is installed that would be worth a process of its own
        # Also those whose program is missing: somebody has to say so.
        others = [name for name in providers.names if name not in programs]
        queues = ",".join(["messages", "upkeep", *map(agent_queue, others)])
        self._supervisor.start("worker", [*worker, "-n", "worker@%h", "-c", str(self._concurrency), "-Q", queues], env)
        if programs:
            queues = ",".join(map(agent_queue, programs))
            self._supervisor.start("clis", [*worker, "-n", "clis@%h", "-c", str(PROGRAMS), "-Q", queues], env)
            self._say("clis", f"{', '.join(programs)}: up to {PROGRAMS} at once")
        self._supervisor.start("delivery", [*worker, "-n", "delivery@%h", "-c", "20", "-Q", "delivery"], env)
        self._supervisor.start("beat", [*celery, "beat"], env)
        self._supervisor.start("gateway", [*longshore, "gateway", "--port", str(self._port)], env)
        if names := list(listening_channels(desk)):
            self._supervisor.start("listen", [*longshore, "listen"], env)
            self._say("listen", ", ".join(names))
        if self._flower:
            port, file = free_port(FLOWER_PORT), password_file(self._home)
            flower_env(self._home)  # makes the password, before anybody is told where it is
            self._supervisor.start("flower", [*longshore, "flower", "--port", str(port)], env)
            signing_in = f"(user {FLOWER_USER}, password in {file})"
            self._say("flower", f"http://127.0.0.1:{port} {signing_in}{_instead_of(FLOWER_PORT, port)}")

    async def _wait_for_fleet(self, desk: Desk) -> None:
        deadline = time.monotonic() + START_SECONDS
        wanted = {"worker", "delivery", "gateway"}
        with out.status("worker, delivery and gateway are starting"):
            while wanted:
                for process in await desk.db.read(lambda conn: living_processes(conn, 10)):
                    wanted.discard(process.name.partition("@")[0])
                self._supervisor.watch()
                if time.monotonic() > deadline:
                    fail(f"{' and '.join(sorted(wanted))} did not start; see {self._home}/logs")
                await asyncio.sleep(0.1)
        self._say("worker", f"up to {self._concurrency} sessions at once")
        self._say("delivery", "sends what agents say")
        self._say("beat", "rings the sweep, which finds whatever was forgotten")
        taken = _instead_of(GATEWAY_PORT, self._port)
        self._say("gateway", f"{desk.settings.public_url}: console, API, web chat, webhooks{taken}")
        check = await examine_sandbox(desk.settings)
        if check.state == "ok":
            self._say("sandbox", check.detail)
        else:
            out.print(
                f"[yellow]![/yellow] [bold]sandbox[/bold]   {shown(check.detail)}. {shown(check.remedy)}",
                soft_wrap=True,
            )

    async def _watch(self, desk: Desk) -> None:
        """Show events, and start again what dies, until somebody stops us."""
        printer = self._printer = EventPrinter(out, prefix=True)
        client = redis_client(desk.settings.redis_url)

        async def show() -> None:
            async for item in Follower(desk.db, client, None).events():
                printer.show(item)

        showing = asyncio.create_task(show())
        try:
            while True:
                self._supervisor.watch()
                if showing.done():
                    showing.result()
                await asyncio.sleep(0.5)
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
            printer.close()
            await client.aclose()

    async def _stop(self) -> None:
        out.print(
            "\n[dim]stopping: running turns are finished or handed over (Ctrl-C again: handed over now) ...[/dim]"
        )
        killed = await asyncio.to_thread(self._supervisor.stop, STOP_SECONDS)
        withdraw(self._home)
        for name in killed:
            out.print(f"[yellow]{name} did not stop in time and was killed; nothing is lost[/yellow]")
        out.print("stopped. Everything is kept; [bold]make up[/bold] goes on from here.")

    def _told_of_death(self, name: str, how: str) -> None:
        self._printer.close()
        out.print(f"[yellow]{name} {how}; starting it again[/yellow] [dim]({self._home}/logs/{name}.log)[/dim]")

    def _say(self, what: str, detail: str) -> None:
        out.print(f"[green]✓[/green] {what:<9} [dim]{detail}[/dim]", soft_wrap=True)


async def _until_redis_answers(url: str) -> None:
    client = redis_client(url)
    try:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(RedisError, OSError):
                    await client.ping()
                    return
                await asyncio.sleep(0.05)
    finally:
        await client.aclose()


def _instead_of(usual: int, port: int) -> str:
    """Whoever knows the address by heart learns why it is another one."""
    return f"; {usual} is taken" if port != usual else ""


def _absolute(database_url: str) -> str:
    """A relative SQLite path means this folder, also for commands that are run elsewhere with LONGSHORE_HOME."""
    prefix = "sqlite:///"
    if database_url.startswith(prefix) and not database_url.startswith(prefix + "/"):
        return prefix + str(Path(database_url.removeprefix(prefix)).resolve())
    return database_url
