"""Typing while others write, on a real pseudo-terminal."""

import asyncio
import os
import pty
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from gateway.cli.terminal import Terminal

pytestmark = pytest.mark.spec("G4")


class Screen:
    """The other side of the terminal: a person's keyboard and eyes."""

    def __init__(self, primary: int, secondary: int, paper: TextIO) -> None:
        self._primary = primary
        self._paper = paper
        self.secondary = secondary

    def terminal(self, history: Path) -> Terminal:
        return Terminal(history, self.secondary, self._paper)

    def press(self, keys: str) -> None:
        os.write(self._primary, keys.encode())

    async def sees(self, text: str) -> str:
        """What is shown up to and including a text; it may come in pieces."""
        shown = ""
        async with asyncio.timeout(10):
            while text not in shown:
                await asyncio.sleep(0)
                shown += self.seen()
        return shown

    def seen(self) -> str:
        try:
            return os.read(self._primary, 65_536).decode()
        except BlockingIOError:
            return ""


@pytest.fixture
def screen() -> Iterator[Screen]:
    primary, secondary = pty.openpty()
    os.set_blocking(primary, False)
    with os.fdopen(os.dup(secondary), "w", encoding="utf-8") as paper:
        yield Screen(primary, secondary, paper)
    os.close(secondary)
    os.close(primary)


async def test_a_line_is_read_and_the_terminal_gets_its_modes_back(screen: Screen, tmp_path: Path) -> None:
    before = termios.tcgetattr(screen.secondary)
    history = tmp_path / "home" / "chat_history"
    terminal = screen.terminal(history)
    with terminal.opened():
        assert termios.tcgetattr(screen.secondary) != before
        screen.press("hällo\r\x04")
        assert await asyncio.wait_for(terminal.lines.get(), 5) == "hällo"
        assert await asyncio.wait_for(terminal.lines.get(), 5) is None
    assert termios.tcgetattr(screen.secondary) == before
    assert history.read_text() == '"h\\u00e4llo"\n'
    assert oct(history.stat().st_mode)[-3:] == "600"
    assert screen.terminal(history)._editor.history == ["hällo"]


async def test_what_is_said_scrolls_by_above_what_is_being_typed(screen: Screen, tmp_path: Path) -> None:
    terminal = screen.terminal(tmp_path / "history")
    with terminal.opened():
        assert "› " in screen.seen()
        terminal.busy = True  # nobody types: text comes as it comes
        screen.seen()
        terminal.write("half a ")
        terminal.flush()
        assert screen.seen() == "half a "
        screen.press("x")
        await screen.sees("› \x1b[0mx")
        terminal.write("line")  # somebody types: only whole lines
        assert screen.seen() == ""
        terminal.write(" more\nnext")
        terminal.flush()
        assert "line more\r\n" in await screen.sees("› \x1b[0mx")
        screen.press("\x7f")  # nothing is typed any more: the rest comes
        await screen.sees("\r\x1b[Knext")


async def test_an_interruption_clears_the_line_and_then_leaves(screen: Screen, tmp_path: Path) -> None:
    terminal = screen.terminal(tmp_path / "history")
    with terminal.opened():
        screen.press("never mind")
        await screen.sees("never mind")
        terminal._interrupted()
        assert terminal.lines.empty()
        terminal._interrupted()
        assert terminal.lines.get_nowait() is None


async def test_a_terminal_that_goes_away_ends_the_chat(screen: Screen, tmp_path: Path) -> None:
    terminal = screen.terminal(tmp_path / "history")
    with terminal.opened():
        read, write = os.pipe()
        os.close(write)
        terminal._fd, kept = read, terminal._fd
        terminal._keys()
        terminal._fd = kept
        os.close(read)
        assert terminal.lines.get_nowait() is None


def test_a_broken_history_is_no_history(screen: Screen, tmp_path: Path) -> None:
    (tmp_path / "history").write_text('"fine"\n{')
    assert screen.terminal(tmp_path / "history")._editor.history == []


async def test_an_agent_at_work_may_hold_whoever_interrupts(screen: Screen, tmp_path: Path) -> None:
    asked: list[str] = []

    def stay() -> bool:
        asked.append("once")
        return len(asked) == 1

    terminal = screen.terminal(tmp_path / "history")
    with terminal.opened(stay):
        terminal._interrupted()
        assert terminal.lines.empty()
        terminal._interrupted()
        assert terminal.lines.get_nowait() is None


async def test_a_terminal_that_becomes_narrow_is_tidied_up(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = screen.terminal(tmp_path / "history")
    with terminal.opened():
        screen.press("x" * 50)
        await screen.sees("x" * 50)
        monkeypatch.setenv("COLUMNS", "20")
        terminal._resized()
        # The terminal had made three rows of it, and the cursor is in the last.
        assert "\r\x1b[2A\x1b[J" in await screen.sees("x" * 16)


async def test_no_colour_is_no_colour(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with screen.terminal(tmp_path / "history").opened():
        assert "\x1b[1;36m" not in await screen.sees("› ")
