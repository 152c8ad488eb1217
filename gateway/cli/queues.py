"""`longshore queues`: what waits where, who reads it, and what lies where nobody does."""

from dataclasses import asdict
from shlex import quote
from typing import Annotated

import typer
from redis.exceptions import RedisError
from rich.table import Table

from gateway.cli.desk import BY, EX_UNAVAILABLE, AsJson, Desk, fail, out, print_json, run, shown
from gateway.queue_states import QueueState, queue_states
from models.overview import look_over
from models.spending import everybodys
from workers.events import redis_client
from workers.operations.queues import rescue
from workers.queues import look, queue_names
from workers.settings import Settings

queues = typer.Typer(help="Queues: what waits, who reads it, what nobody reads.", invoke_without_command=True)


@queues.callback()
def listing(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """List the queues; lists with messages for this fleet that no worker reads come last."""
    if context.invoked_subcommand is not None:
        return

    lines = run(_look, broker=True)
    if as_json:
        print_json([asdict(line) for line in lines])
        return
    out.print(_table(lines))
    for line in lines:
        if line.stray:
            out.print(
                f"[yellow]{shown(line.queue)} is read by nobody[/yellow]: a producer names a wrong queue. "
                f"Correct it there, then: longshore queues rescue {quote(shown(line.queue))}",
                soft_wrap=True,
            )


@queues.command("rescue")
def rescue_stray(
    name: Annotated[str, typer.Argument(help="a list that nobody reads, as `longshore queues` shows it")],
    as_json: AsJson = False,
) -> None:
    """Move the messages of a list that nobody reads to the queue `messages`. Whatever else is there stays."""

    async def command(desk: Desk) -> None:
        client = redis_client(_broker(desk.settings))
        try:
            done = await rescue(desk, BY, client, name)
        except (RedisError, OSError) as error:
            fail(f"the broker does not answer ({type(error).__name__})", EX_UNAVAILABLE)
        finally:
            await client.aclose()
        if as_json:
            print_json({"queue": name, **asdict(done)})
        elif not done.moved:
            fail(f"nothing in {name} is a message for an agent: nothing was moved")
        else:
            rest = f"; {done.left} that are none stay in {shown(name)}" if done.left else ""
            out.print(f"[green]{done.moved} moved to messages[/green]{rest}")

    run(command, broker=True)


async def _look(desk: Desk) -> list[QueueState]:
    settings, names = desk.settings, queue_names(desk.registry)
    client = redis_client(_broker(settings))
    try:
        lists = await look(client, names)
    except (RedisError, OSError) as error:
        fail(f"the broker does not answer ({type(error).__name__})", EX_UNAVAILABLE)
    finally:
        await client.aclose()
    provider, alive = settings.default_provider, settings.alive_seconds
    seen = await desk.db.read(lambda conn: look_over(conn, everybodys, default_provider=provider, alive_seconds=alive))
    return queue_states(seen, lists, names)


def _broker(settings: Settings) -> str:
    if not settings.broker.startswith(("redis://", "rediss://", "unix://")):
        fail("the broker is no Redis: look at its queues with its own tools")
    return settings.broker


def _table(lines: list[QueueState]) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("queue", "in the broker", "due rows", "workers"):
        table.add_column(name, justify="right" if name in ("in the broker", "due rows") else "left")
    for line in lines:
        if line.stray:
            who = "[red]not a queue: nobody reads it[/red]"
        elif line.workers:
            who = shown(", ".join(line.workers))
        else:
            who = "[yellow]none[/yellow]" if line.in_broker or line.due else "[dim]none[/dim]"
        table.add_row(shown(line.queue), str(line.in_broker), str(line.due), who)
    return table
