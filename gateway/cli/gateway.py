"""`longshore gateway` and `longshore listen`: the processes that let platforms in."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import structlog
import typer

from adapters.registry import Registry
from gateway.cli.desk import EX_UNAVAILABLE, fail
from models import schema
from models.errors import DatabaseDownError, StoreError
from models.tokens import any_token
from workers.intake.listening import listen_to_all, listening_channels
from workers.intake.outpost import Outpost
from workers.logs import configure_logs
from workers.runtime import Node
from workers.settings import SettingsError, load_settings, require_broker

log = structlog.get_logger()

PORT: Final = 8400


def gateway(
    host: Annotated[str, typer.Option(help="where to listen; other machines come through a proxy that adds TLS")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free; the log says which")] = PORT,
    name: Annotated[
        str, typer.Option("--name", "-n", help="a second one on the same machine needs another")
    ] = "gateway",
) -> None:
    """Run the HTTP gateway: console, API, web chat and platforms' webhooks. On an address that others can reach it does
    not start before there is a token."""
    # Imported here: most commands do without, and it takes a while.
    from adapters.local_server import listen_on
    from gateway.http.app import Gateway
    from gateway.http.serving import serve

    try:
        listener = listen_on(host, port)
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {error.strerror}", EX_UNAVAILABLE)

    async def work(outpost: Outpost) -> None:
        if not _is_loopback(host) and not await outpost.db.read(any_token):
            fail(
                f"others can reach {host}, and there is no token by which to tell who calls. Make one first: "
                "longshore token add NAME --role owner (or listen on 127.0.0.1)"
            )
        receiving = [channel for channel, driver in outpost.registry.channels.working.items() if driver.receives]
        log.info("gateway.listens", host=host, port=listener.getsockname()[1], channels=receiving)
        await serve(Gateway(outpost, outpost.redis), listener)

    with listener:
        _run_process(name, "gateway", work)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(
    name: Annotated[
        str, typer.Option("--name", "-n", help="a second one on the same machine needs another")
    ] = "listen",
) -> None:
    """Listen to platforms that must be asked or held on to. Several do no harm: one is active, the others stand by."""

    async def work(outpost: Outpost) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sig, stop.set)
        if names := list(listening_channels(outpost)):
            log.info("listener.starts", names=names)
        else:
            log.info("listener.idle", meaning="no channel that must be listened to is configured", see="docs/channels")
        stopped = asyncio.create_task(stop.wait())
        listening = asyncio.create_task(listen_to_all(outpost))
        await asyncio.wait({stopped} | ({listening} if names else set()), return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, listening):
            task.cancel()
        await asyncio.gather(stopped, listening, return_exceptions=True)

    _run_process(name, "listen", work)


def _run_process(name: str, kind: str, work: Callable[[Outpost], Awaitable[None]]) -> None:
    """Like a worker: logs by the settings, a sentence and an exit code when it cannot start."""
    try:
        settings = load_settings()
        configure_logs(settings.log_level, as_json=settings.log_json)
        require_broker(settings)
        schema.check(settings.database_url)
    except DatabaseDownError as error:
        fail(str(error), EX_UNAVAILABLE)
    except (SettingsError, StoreError) as error:
        fail(str(error))
    # Imported here: making the Celery app takes a moment, and most commands do not ring.
    from workers.bells import CeleryBells
    from workers.celery_config import make_app

    async def process() -> None:
        registry = Registry()
        bells = CeleryBells(make_app(settings, registry), settings.redis_url)
        async with Outpost(settings, bells, registry, Node(f"{name}@{socket.gethostname()}", kind)) as outpost:
            await work(outpost)

    asyncio.run(process())
