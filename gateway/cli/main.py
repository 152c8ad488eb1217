"""The command line's table of contents: what `longshore --help` shows."""

from typing import Annotated, Final

import typer

from gateway.cli.chapters import Entry, chapters

CONTENTS: Final = {
    "Run the fleet": {
        "up": Entry("gateway.cli.up:up", "Run everything in this terminal, with a demo agent."),
        "gateway": Entry("gateway.cli.gateway:gateway", "Serve the console, the API, web chat and webhooks."),
        "listen": Entry("gateway.cli.gateway:listen", "Listen to platforms that must be asked or held on to."),
        "flower": Entry("gateway.cli.flower:flower", "Serve Flower, Celery's own view, behind a password."),
    },
    "Talk": {
        "chat": Entry("gateway.cli.chat:chat", "Talk with an agent in this terminal, or through a pipe."),
        "send": Entry("gateway.cli.messages:send", "Send one message, and watch the answer come."),
        "attach": Entry("gateway.cli.attach:attach", "Sit down at the terminal of an agent's program."),
    },
    "Look": {
        "tail": Entry("gateway.cli.messages:tail", "Watch what happens, in one session or in the whole fleet."),
        "sessions": Entry("gateway.cli.sessions:sessions", "List sessions, the latest first, or show one."),
        "usage": Entry("gateway.cli.usage:usage", "Show tokens and cost, and what is left of budgets."),
        "providers": Entry("gateway.cli.providers:providers", "List providers: health, keys, workers, rate limits."),
        "queues": Entry("gateway.cli.queues:queues", "List queues: what waits, and who reads it."),
        "tools": Entry("gateway.cli.tools:tools", "List what agents can do."),
        "route": Entry("gateway.cli.route:route", "Explain which agent would answer a message, and why."),
        "console": Entry("gateway.cli.token:console", "Print a link that opens the console, signed in."),
    },
    "Steer": {
        "approvals": Entry("gateway.cli.approvals:approvals", "List what waits for a decision, or show one whole."),
        "approve": Entry("gateway.cli.approvals:approve", "Allow what an agent asks for."),
        "deny": Entry("gateway.cli.approvals:deny", "Refuse what an agent asks for."),
        "questions": Entry("gateway.cli.questions:questions", "List what agents have asked people."),
        "answer": Entry("gateway.cli.questions:answer", "Answer a question; the agent goes on."),
        "tasks": Entry("gateway.cli.tasks:tasks", "Schedule work: once, or again and again."),
        "foreman": Entry("gateway.cli.foreman:foreman", "Let several agents reach one goal in a repository."),
        "dead": Entry("gateway.cli.dead:dead", "Look at messages that were given up; try them again."),
        "cancel": Entry("gateway.cli.steering:cancel", "Stop the turn that a session is in."),
        "reset": Entry("gateway.cli.steering:reset", "Let a conversation begin anew."),
        "close": Entry("gateway.cli.steering:close", "End a session, or a replay."),
        "replay": Entry("gateway.cli.replay:replay", "Say messages again on another provider, and compare."),
    },
    "Set up": {
        "groups": Entry("gateway.cli.groups:groups", "Make agents; set their provider, model, budget, policy."),
        "wire": Entry("gateway.cli.wire:wire", "Let an agent listen in a place."),
        "unwire": Entry("gateway.cli.wire:unwire", "Let an agent listen there no more."),
        "wirings": Entry("gateway.cli.wire:wirings", "List where agents listen, and to what."),
        "people": Entry("gateway.cli.people:people", "Say who may do what: owners, admins, members."),
        "owners": Entry("gateway.cli.owners:owners", "Say who is told when something is given up."),
        "token": Entry("gateway.cli.token:token", "Give programs and browsers access, or take it away."),
        "adapters": Entry("gateway.cli.adapters:adapters", "Sign drivers that you make for others."),
    },
    "Look after": {
        "doctor": Entry("gateway.cli.upkeep:doctor", "Look for what is wrong, and say what to do."),
        "health": Entry("gateway.cli.upkeep:health", "For probes: does a process live and work?"),
        "migrate": Entry("gateway.cli.upkeep:migrate", "Bring the database's tables to this release."),
        "prune": Entry("gateway.cli.prune:prune", "Remove what is old and finished, or archive it."),
    },
}

app = typer.Typer(
    name="longshore",
    cls=chapters(CONTENTS),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        # Imported here: `--help` does without.
        from importlib.metadata import version

        typer.echo(f"longshore {version('longshore')}")
        raise typer.Exit


@app.callback()
def options(
    show: Annotated[
        bool, typer.Option("--version", help="show the version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A fleet that runs AI agents: no message is lost, none is answered twice."""
