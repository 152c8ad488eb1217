"""The command line's table of contents."""

from importlib.metadata import version
from typing import Annotated

import typer

from gateway.cli.adapters import adapters
from gateway.cli.approvals import approvals, approve, deny
from gateway.cli.attach import attach
from gateway.cli.chat import chat
from gateway.cli.dead import dead
from gateway.cli.gateway import gateway, listen
from gateway.cli.groups import groups
from gateway.cli.messages import send, tail
from gateway.cli.owners import owners
from gateway.cli.people import people
from gateway.cli.providers import providers
from gateway.cli.prune import prune
from gateway.cli.questions import answer, questions
from gateway.cli.route import route
from gateway.cli.sessions import sessions
from gateway.cli.tasks import tasks
from gateway.cli.tokens import tokens
from gateway.cli.tools import tools
from gateway.cli.up import up
from gateway.cli.upkeep import doctor, health, migrate
from gateway.cli.usage import usage
from gateway.cli.wire import unwire, wire, wirings

app = typer.Typer(
    name="longshore",
    help="A fleet that runs AI agents: no message is lost, none is answered twice.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(chat)
app.command()(send)
app.command()(tail)
app.command()(sessions)
app.command()(attach)
app.add_typer(tasks, name="tasks")
app.add_typer(dead, name="dead")
app.add_typer(groups, name="groups")
app.add_typer(owners, name="owners")
app.add_typer(people, name="people")
app.command()(wire)
app.command()(unwire)
app.command()(wirings)
app.command()(route)
app.command()(questions)
app.command()(answer)
app.command()(approvals)
app.command()(approve)
app.command()(deny)
app.command()(providers)
app.add_typer(adapters, name="adapters")
app.command()(tools)
app.command()(gateway)
app.command()(listen)
app.add_typer(tokens, name="tokens")
app.command()(usage)
app.command()(prune)
app.command()(doctor)
app.command()(health)
app.command()(migrate)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"longshore {version('longshore')}")
        raise typer.Exit


@app.callback()
def options(
    show: Annotated[
        bool, typer.Option("--version", help="show the version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A fleet that runs AI agents: no message is lost, none is answered twice."""
