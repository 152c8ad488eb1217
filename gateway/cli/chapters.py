"""Commands that are imported when somebody calls them. Importing all of them takes more than a second, and `longshore
--help`, a wrong name or a completed word needs none."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from gateway.cli import collect_from_here
from gateway.cli.completion import offer_values


@dataclass(frozen=True)
class Entry:
    """Where a command is (`package.module:name`), and its one line in a list of commands."""

    path: str
    line: str


class Chapter(TyperCommand):
    """Stands for a command, or for a group of them, until it is called."""

    def __init__(self, name: str, entry: Entry, panel: str) -> None:
        super().__init__(name, short_help=entry.line, rich_help_panel=panel)
        self._path = entry.path

    @cached_property
    def command(self) -> TyperCommand | TyperGroup:
        """The command itself."""
        module, _, attribute = self._path.partition(":")
        found = getattr(import_module(module), attribute)
        collect_from_here()
        if isinstance(found, typer.Typer):
            return self._named(get_group(offer_values(found)))
        alone = typer.Typer(add_completion=False)
        alone.command()(found)
        return self._named(get_command(offer_values(alone)))

    def _named(self, command: Any) -> TyperCommand | TyperGroup:
        command.name = self.name
        assert isinstance(command, TyperCommand | TyperGroup)
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.command.make_context(info_name, args, parent, **extra)


def chapters(contents: Mapping[str, Mapping[str, Entry]]) -> type[TyperGroup]:
    """A group that lists the commands of a table of contents, panel by panel, before those it is given."""

    class Contents(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            listed: dict[str, Any] = {}
            for panel, entries in contents.items():
                listed |= {name: Chapter(name, entry, panel) for name, entry in entries.items()}
            self.commands = {**listed, **self.commands}

    return Contents
