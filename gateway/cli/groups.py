"""`longshore groups`: agents and how each of them runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from gateway.cli.desk import BY, AsJson, Desk, data_of, fail, out, print_json, run, shown
from gateway.cli.group_settings import described, parse_options, parse_policy_file
from gateway.cli.listening import warn_of_provider
from gateway.figures import budget_words
from models.base import AnyRow
from models.groups import agent_groups
from workers.operations.agents import agent_named
from workers.operations.group_settings import (
    DEFAULT,
    Changes,
    GroupSettings,
    GroupSettingsError,
    OptionValue,
    parse_budget,
    without_secrets,
)
from workers.operations.groups import add_group, check_folder, update_group

T = TypeVar("T")

groups = typer.Typer(help="Agents: their folder, provider, model and budget.", no_args_is_help=True)

Folder = Annotated[str, typer.Argument(help="the agent, by folder name or id")]
Name = Annotated[str | None, typer.Option(help="a name to show")]
Provider = Annotated[str | None, typer.Option(help="a provider; `default` is DEFAULT_PROVIDER")]
Model = Annotated[str | None, typer.Option(help="a model; `default` is DEFAULT_MODEL, else the provider's own")]
Fallback = Annotated[
    list[str] | None, typer.Option(metavar="PROVIDER[:MODEL]", help="goes on when the provider fails; give several")
]
DailyBudget = Annotated[str | None, typer.Option(metavar="USD", help="what it may cost in a day (UTC), or `none`")]
UserBudget = Annotated[str | None, typer.Option(metavar="USD", help="the same for each person, or `none`")]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="the provider's own; `KEY=` removes it")
]
Script = Annotated[
    Path | None, typer.Option(help="for the scripted provider: a script file", exists=True, dir_okay=False)
]
PolicyFile = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="what it may do: a YAML file (docs/tools.md), or `default`"),
]


@groups.command("list")
def list_groups(as_json: AsJson = False) -> None:
    """List agents."""

    async def command(desk: Desk) -> None:
        rows = await desk.db.read(agent_groups)
        if as_json:
            print_json([_as_json(row) for row in rows])
        elif not rows:
            out.print("no agents yet. Make one: [bold]longshore groups add NAME[/bold]")
        else:
            out.print(_table(rows, desk.settings.default_provider))

    run(command)


@groups.command("add")
def add(
    folder: Annotated[str, typer.Argument(help="the name people type, and the folder's name")],
    name: Name = None,
    provider: Provider = None,
    model: Model = None,
    fallback: Fallback = None,
    daily_budget: DailyBudget = None,
    user_daily_budget: UserBudget = None,
    option: Options = None,
    policy: PolicyFile = None,
    script: Script = None,
    as_json: AsJson = False,
) -> None:
    """Make an agent."""
    _sentence(lambda: check_folder(folder))
    changes = _changes(name, provider, model, fallback, False, daily_budget, user_daily_budget, option, policy, script)

    async def command(desk: Desk) -> None:
        made = await add_group(desk, BY, folder, changes)
        if as_json:
            await _show(desk, folder, as_json)
        else:
            out.print(f'made. Talk to it: [bold]longshore send {folder} "hello"[/bold]')
        await warn_of_provider(desk, made.provider or desk.settings.default_provider)

    run(command)


@groups.command("show")
def show(folder: Folder, as_json: AsJson = False) -> None:
    """Show how an agent is set up."""
    run(lambda desk: _show(desk, folder, as_json))


@groups.command("set")
def change(
    folder: Folder,
    name: Name = None,
    provider: Provider = None,
    model: Model = None,
    fallback: Fallback = None,
    no_fallbacks: Annotated[bool, typer.Option("--no-fallbacks", help="fail rather than change the provider")] = False,
    daily_budget: DailyBudget = None,
    user_daily_budget: UserBudget = None,
    option: Options = None,
    policy: PolicyFile = None,
    script: Script = None,
    as_json: AsJson = False,
) -> None:
    """Change how an agent runs: only what is named here. Its next turn goes by it."""
    if fallback and no_fallbacks:
        fail("--fallback and --no-fallbacks exclude each other", 2)
    changes = _changes(
        name, provider, model, fallback, no_fallbacks, daily_budget, user_daily_budget, option, policy, script
    )

    async def command(desk: Desk) -> None:
        if changes.anything:
            before, after = await update_group(desk, BY, folder, changes)
            await _show(desk, folder, as_json)
            if after.provider != before.provider:
                await warn_of_provider(desk, after.provider or desk.settings.default_provider)
        else:
            await _show(desk, folder, as_json)

    run(command)


async def _show(desk: Desk, folder: str, as_json: bool) -> None:
    row = await desk.db.read(lambda conn: agent_named(conn, folder))
    if as_json:
        print_json(_as_json(row))
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    settings = desk.settings
    for what, words in described(GroupSettings.of_row(row), settings.default_provider, settings.default_model):
        table.add_row(what, shown(words))
    out.print(f"[bold]{shown(row.folder)}[/bold]")
    out.print(table)


def _as_json(row: AnyRow) -> dict[str, Any]:
    return data_of(row._mapping) | {"config": without_secrets(row.config or {})}


def _changes(
    name: str | None,
    provider: str | None,
    model: str | None,
    fallback: list[str] | None,
    no_fallbacks: bool,
    daily_budget: str | None,
    user_daily_budget: str | None,
    option: list[str] | None,
    policy: str | None,
    script: Path | None,
) -> Changes:
    for given, value in (("--provider", provider), ("--model", model)):
        if value is not None and not value.strip():
            fail(f"{given} is empty; `default` goes back to the default", 2)

    def parse() -> Changes:
        budget = {
            "daily_usd": (daily_budget, parse_budget("--daily-budget", daily_budget)),
            "user_daily_usd": (user_daily_budget, parse_budget("--user-daily-budget", user_daily_budget)),
        }
        options = parse_options(option or [])
        if script is not None:
            options["script"] = OptionValue(_read(script))
        return Changes(
            name=name,
            provider=provider,
            model=model,
            fallbacks=() if no_fallbacks else tuple(fallback) if fallback else None,
            budget={key: usd for key, (given, usd) in budget.items() if given is not None},
            options=options,
            policy=_policy(policy),
        )

    return _sentence(parse)


def _sentence(work: Callable[[], T]) -> T:
    """What is wrong with what was typed, before anything is looked at."""
    try:
        return work()
    except GroupSettingsError as error:
        fail(str(error), 2)


def _policy(given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    return {} if given == DEFAULT else parse_policy_file(_read(Path(given)))


def _read(script: Path) -> str:
    try:
        return script.read_text()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{script} cannot be read as text: {error}")


def _table(rows: list[AnyRow], default_provider: str) -> Table:
    all_settings = [(row.folder, GroupSettings.of_row(row)) for row in rows]
    columns: dict[str, Callable[[GroupSettings], str]] = {
        "name": lambda group: shown(group.name),
        "provider": lambda group: (
            shown(group.provider or default_provider) + ("" if group.provider else " [dim](default)[/dim]")
        ),
        "model": lambda group: shown(group.model or "-"),
    }
    if any(group.fallbacks for _, group in all_settings):
        columns["fallbacks"] = lambda group: shown(", ".join(group.fallbacks) or "-")
    if any(group.budget for _, group in all_settings):
        columns["budget"] = lambda group: budget_words(group.budget) or "-"
    table = Table("folder", *columns, box=None, header_style="dim")
    for folder, group in all_settings:
        table.add_row(shown(folder), *(cell(group) for cell in columns.values()))
    return table
