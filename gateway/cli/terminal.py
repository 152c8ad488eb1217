"""A terminal on which one can type while others write: what is said scrolls by, and the bottom row is the prompt.

The prompt is there when nobody is writing, or when something is being typed. While it is there, text is shown in whole
lines above it; while it is not, as it comes. The terminal gets its modes back whatever happens."""

import asyncio
import codecs
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from gateway.cli.line_editor import End, LineEditor
from gateway.embedded import write_private

PROMPT = "› "
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_READ_BYTES = 65_536


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Terminal:
    """A text file for whoever writes, and a queue of `lines` for whoever reads; None in it: they want to leave."""

    def __init__(self, history_file: Path, keyboard: int, out: TextIO) -> None:
        self._history_file = history_file
        self._editor = LineEditor(_load(history_file))
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd = keyboard
        self._out = out
        self._busy = False
        self._drawn = False
        self._cursor = 0  # cells before it in the row that is drawn
        self._open = False
        self._line_begins = True
        self._stay: Callable[[], bool] = lambda: False
        self._held = ""  # of a line that is not whole yet
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()

    @contextlib.contextmanager
    def opened(self, stay: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Read keys as they are pressed, until the block is left. `stay` is asked when Ctrl-C is pressed and nothing is
        typed: whether they stay all the same."""
        loop = asyncio.get_running_loop()
        before = termios.tcgetattr(self._fd)
        self._open = True
        self._stay = stay
        self._take_over()
        loop.add_reader(self._fd, self._keys)
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        loop.add_signal_handler(signal.SIGCONT, self._take_over)
        try:
            yield
        finally:
            loop.remove_reader(self._fd)
            for number in (signal.SIGINT, signal.SIGWINCH, signal.SIGCONT):
                loop.remove_signal_handler(number)
            self._open = False
            self._refresh()
            self._raw(_PASTE_OFF)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)
            _save(self._history_file, self._editor.history)

    @property
    def busy(self) -> bool:
        return self._busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        """Somebody is writing: leave the rows to them."""
        self._busy = busy
        self._refresh()

    # --- a file to write to

    def write(self, text: str) -> int:
        if not self._drawn:
            self._raw(text)
            self._line_begins = _COLOURS.sub("", text).endswith("\n") if _COLOURS.sub("", text) else self._line_begins
        else:
            whole, newline, self._held = (self._held + text).rpartition("\n")
            if newline:
                self._raw(f"\r\x1b[K{whole}\n")
                self._draw()
        return len(text)

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._out.fileno()

    @property
    def encoding(self) -> str:
        return self._out.encoding

    # --- the keyboard

    def _keys(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
            self.lines.put_nowait(None)
            return
        finished = self._editor.feed(self._decoder.decode(data))
        for item in finished:
            self.lines.put_nowait(None if isinstance(item, End) else item.text)
        self._refresh()

    def _interrupted(self) -> None:
        if self._editor.text:
            self._editor.clear()
            self._refresh()
        elif not self._stay():
            self.lines.put_nowait(None)

    # --- the bottom row

    def _take_over(self) -> None:
        tty.setcbreak(self._fd, termios.TCSADRAIN)
        self._raw(_PASTE_ON)
        self._refresh()

    def _resized(self) -> None:
        """A terminal that became narrower has broken the row: what it made of it goes."""
        above = self._cursor // max(shutil.get_terminal_size().columns, 1) if self._drawn else 0
        if above:
            self._raw(f"\r\x1b[{above}A\x1b[J")
        self._refresh()

    def _refresh(self) -> None:
        wanted = self._open and (not self._busy or bool(self._editor.text))
        if wanted:
            if not self._drawn and not self._line_begins:
                self._raw("\n")
            self._line_begins = True
            self._draw()
        elif self._drawn:
            self._drawn = False
            held, self._held = self._held, ""
            self._raw("\r\x1b[K")
            self.write(held)
            self.flush()

    def _draw(self) -> None:
        cells = max(shutil.get_terminal_size().columns - len(PROMPT) - 1, 1)
        text, cursor = self._editor.view(cells)
        self._cursor = len(PROMPT) + cursor
        prompt = PROMPT if os.environ.get("NO_COLOR") else f"\x1b[1;36m{PROMPT}\x1b[0m"
        self._raw(f"\r\x1b[K{prompt}{text}\r\x1b[{self._cursor}C")
        self._drawn = True
        self.flush()

    def _raw(self, text: str) -> None:
        # A terminal that cannot show a character must not end the conversation.
        self._out.write(text.encode(self._out.encoding, "replace").decode(self._out.encoding))


def _load(file: Path) -> list[str]:
    """One JSON string per line: a message may have several lines."""
    try:
        lines = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError):
        return []
    return [line for line in lines if isinstance(line, str)]


def _save(file: Path, history: list[str]) -> None:
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, "".join(json.dumps(line) + "\n" for line in history))
