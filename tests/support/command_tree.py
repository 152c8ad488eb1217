"""The commands of the command line, as somebody finds them who asks for help again and again."""

from collections.abc import Iterator

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gateway.cli.chapters import Chapter
from gateway.cli.main import app


def commands() -> dict[str, TyperCommand | TyperGroup]:
    """All that can be called, by their words: "send", "groups add". A group is one only if it does something alone."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    return dict(_within(root, ()))


def _within(group: TyperGroup, words: tuple[str, ...]) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    for name, found in group.commands.items():
        command = found.command if isinstance(found, Chapter) else found
        assert isinstance(command, TyperCommand | TyperGroup)
        path = (*words, name)
        if not isinstance(command, TyperGroup) or command.invoke_without_command:
            yield " ".join(path), command
        if isinstance(command, TyperGroup):
            yield from _within(command, path)


def has_option(command: TyperCommand | TyperGroup, option: str) -> bool:
    return any(option in param.opts for param in command.params)
