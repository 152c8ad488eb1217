"""`longshore replay`: say a session's messages again, on another provider or model, beside it or in the conversation
itself, and see both beside each other."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from gateway.cli.desk import BY, AsJson, Desk, data_of, err, fail, out, print_json, run, shown
from gateway.cli.sessions import one_session
from models.lookup import short
from workers.operations.again import Again
from workers.operations.again import again as answer_again
from workers.operations.replays import Pair, Replay, Side, compare
from workers.operations.replays import replay as make_replay

_OVER: Final = ("completed", "failed", "cancelled")
LOOK_SECONDS: Final = 0.5


def replay(
    session: Annotated[str, typer.Argument(help="the session's id (its end is enough); with --show: the replay's")],
    turn: Annotated[list[int] | None, typer.Option(help="only this turn; may be given several times")] = None,
    provider: Annotated[str | None, typer.Option(help="who is to answer, instead of who did")] = None,
    model: Annotated[str | None, typer.Option(help="with which model")] = None,
    deliver: Annotated[bool, typer.Option("--deliver", help="answers leave, to where the first ones went")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="not beside it: the conversation begins anew, and is answered again there")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until it is over, and compare")] = False,
    show: Annotated[bool, typer.Option("--show", help="compare a replay that was made before")] = False,
    as_json: AsJson = False,
) -> None:
    """Say a session's messages again in a session of their own; nothing leaves it unless you say --deliver."""
    if show and (turn or provider or model or deliver or again):
        fail("--show looks at a replay that is there: give it the replay's id and nothing else", 2)
    if again and deliver:
        fail("--again always answers where it was said: leave --deliver out", 2)

    async def command(desk: Desk) -> None:
        session_id = await one_session(desk, session)
        if show:
            if not await desk.db.read(lambda conn: compare(conn, session_id, 0, 1)):
                fail(f"session {short(session_id)} is no replay; make one: longshore replay {short(session_id)}")
            await _compare(desk, session_id, wait=wait, as_json=as_json)
            return
        wish: dict[str, Any] = {"turns": turn or None, "provider": provider, "model": model}
        if again:
            made: Replay | Again = await answer_again(desk, BY, session_id, **wish)
        else:
            made = await make_replay(desk, BY, session_id, **wish, delivery=deliver)
        if wait:
            await _compare(desk, made.session_id, wait=True, as_json=as_json)
        elif as_json:
            print_json(data_of({name: value for name, value in asdict(made).items() if name != "done"}))
        else:
            turns = f"{len(made.turns)} turn{'s' * (len(made.turns) != 1)}"
            out.print(shown(f"{turns} of {short(session_id)} {_how(made)}, session {made.session_id}"))
            out.print(f"watch it: [bold]longshore tail {short(made.session_id)}[/bold]")
            out.print(f"compare: [bold]longshore replay --show {short(made.session_id)} --wait[/bold]")

    run(command, broker=not show)


def _how(made: Replay | Again) -> str:
    if isinstance(made, Again):
        return "to be answered again where they were said"
    return f"replayed on {made.provider}" + (f" ({made.model})" if made.model else "")


async def _compare(desk: Desk, session_id: str, *, wait: bool, as_json: bool) -> None:
    pairs = await desk.db.read(lambda conn: compare(conn, session_id))
    told = False
    while wait and not all(map(_is_over, pairs)):
        if not told and any(pair.replayed.status == "parked" for pair in pairs):
            told = True
            err.print("it waits for a person; see: [bold]longshore questions[/bold], [bold]longshore approvals[/bold]")
        await asyncio.sleep(LOOK_SECONDS)
        pairs = await desk.db.read(lambda conn: compare(conn, session_id))
    if as_json:
        sides = [{name: data_of(side) for name, side in asdict(pair).items()} for pair in pairs]
        print_json({"session": session_id, "pairs": sides})
        return
    for pair in pairs:
        out.print(_table(pair))


def _is_over(pair: Pair) -> bool:
    """Or nobody will begin it: the replay was closed."""
    return pair.replayed.status in _OVER or any(one["status"] == "discarded" for one in pair.replayed.messages)


def _table(pair: Pair) -> Table:
    asked = " | ".join(str(one["text"]) for one in pair.replayed.messages)
    title = shown(f"turn {pair.original.number or '?'}: {asked[:100]}")
    table = Table(box=None, header_style="dim", title=title, title_justify="left", title_style="bold", expand=True)
    for name in ("", "original", "replay"):
        table.add_column(name, ratio=None if not name else 1, no_wrap=not name)
    both = (pair.original, pair.replayed)
    for name, cell in (("state", _state), ("by", _by), ("answers", _answers), ("tools", _tools), ("used", _used)):
        table.add_row(name, *(shown(cell(side)) for side in both))
    return table


def _state(side: Side) -> str:
    return f"{side.status or 'waits'}" + (f": {side.error}" if side.error else "")


def _by(side: Side) -> str:
    return " ".join(name for name in (side.provider, side.model) if name) or "-"


def _answers(side: Side) -> str:
    return "\n".join(str(one["text"]) for one in side.answers) or "-"


def _tools(side: Side) -> str:
    marks = {True: "ok", False: "failed", None: "begun"}
    return ", ".join(f"{tool.name} ({marks[tool.ok]})" for tool in side.tools) or "-"


def _used(side: Side) -> str:
    parts = [f"{side.read_tokens:,} in, {side.output_tokens:,} out"]
    parts += [f"${side.cost_usd:.4f}"] if side.cost_usd is not None else []
    parts += [f"{side.seconds:.1f} s"] if side.seconds is not None else []
    return ", ".join(parts)
