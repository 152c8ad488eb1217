"""A conversation's events as somebody who takes part in it wants to see them: little about turns, all that is said."""

from rich.console import Console
from rich.text import Text

from adapters.errors import ErrorClass
from adapters.events import (
    ApprovalRequested,
    Envelope,
    Failed,
    MessagesJoined,
    QuestionAsked,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnEnded,
    TurnStarted,
)
from gateway.cli.chat_log import Said
from gateway.cli.desk import shown, visible
from gateway.cli.stream import ASKING_TOOL, EventPrinter
from models.lookup import short

ME = "you"
_HISTORY_CHARACTERS = 400
_LEAST_PREVIEW = 8  # cells, however narrow the terminal is
_MARKS = len(" … 1000 s … ✓ ")


class ChatPrinter(EventPrinter):
    def __init__(self, console: Console) -> None:
        super().__init__(console, usage=True)
        self._tool: str | None = None  # the call whose mark stands at the end of the current line
        self._clock = ""  # how long it has taken, as it stands there
        self._parked = False
        self._approval = False  # what it waits for is one

    def show(self, item: Envelope, agent: str = "") -> None:
        match item.event:
            case ToolCall(name=name) if name == ASKING_TOOL:
                pass  # the question itself follows
            case ToolCall(id=call, name=name, preview=preview):
                self._break()
                details = f" [dim]{shown(self._fitted(preview, len(name) + 3))}[/dim]" if preview else ""
                self._console.print(f"[cyan]⚙ {shown(name)}[/cyan]{details} [dim]…[/dim] ", end="", soft_wrap=True)
                self._tool, self._clock = call, ""
            case ToolResult(name=name, ok=True) if name == ASKING_TOOL:
                pass
            case ToolResult(id=call, ok=ok) if call == self._tool:
                self._console.print("[green]✓[/green]" if ok else "[red]✗[/red]")
                self._tool = None
                self._break()
            case ToolProgress(id=call, elapsed=elapsed) if call == self._tool:
                self._tick(f"{elapsed:g} s … ")
            case ToolProgress():
                pass  # of one of several at once
            case ApprovalRequested():
                self._approval = True
                super().show(item, agent)
            case TurnEnded(status=status):
                self._break()
                super().show(item, agent)
                self._parked, self._approval = status == "parked", False
            case _:
                super().show(item, agent)

    def said(self, said: Said) -> None:
        """A message that is no event: another person's, or one the agent sent on the way."""
        self._break()
        mark = "[green]│[/green]" if said.sender is None else f"[magenta]{shown(said.sender)} ›[/magenta]"
        self._print(f"{mark} {shown(said.text)}")

    def echo(self, text: str) -> None:
        self._break()
        self._console.print(f"[bold cyan]›[/bold cyan] {shown(text)}", soft_wrap=True)

    def history(self, messages: list[Said]) -> None:
        for said in messages:
            text = said.text if len(said.text) <= _HISTORY_CHARACTERS else said.text[: _HISTORY_CHARACTERS - 1] + "…"
            mark = "│" if said.sender is None else "›" if said.sender == ME else f"{said.sender} ›"
            self._print(f"[dim]{shown(mark)} {shown(text)}[/dim]")

    def waits(self, words: str) -> None:
        """As `note`, of an agent that waits for somebody."""
        self.note(words)
        self._parked = True

    def note(self, words: str) -> None:
        """Something of ours, with markup."""
        self._break()
        self._print(words)

    def _line(self, item: Envelope) -> str | None:
        match item.event:
            case TurnStarted(attempt=attempt, provider=provider):
                # After an answer it goes on: not worth a word.
                again = attempt > 1 and not self._parked
                return f"[dim]▶ attempt {attempt}, on {shown(provider)}[/dim]" if again else None
            case MessagesJoined() | Failed():
                return None  # their texts are shown, and the turn's end says why
            case ApprovalRequested(id=approval, summary=summary):
                hint = f"\n  [dim]/approve or /deny{f' {short(approval)}' * bool(approval)}[/dim]"
                return f"[yellow]![/yellow] {shown(summary)}{hint}"
            case QuestionAsked(title=title, text=text, options=options):
                choices = "".join(f"\n  [bold]{n}[/bold] {shown(option)}" for n, option in enumerate(options, 1))
                return f"[yellow]?[/yellow] [bold]{shown(title)}[/bold]\n  {shown(text)}{choices}"
            case TurnEnded(status="completed"):
                return f"[dim]{words}[/dim]" if (words := self._spent()) else None
            case TurnEnded(status="waiting", error_class=ErrorClass.RATE_LIMIT, retry_in=seconds):
                return f"[yellow]rate limited, again in {seconds or 0:g} s[/yellow]"
            case TurnEnded(status="parked") if self._approval:
                return "[yellow]⏸ waiting for approval[/yellow] [dim](type /approve or /deny)[/dim]"
            case TurnEnded(status="parked", error_class=error_class) if error_class is not ErrorClass.BUDGET:
                return "[yellow]⏸ waiting for you[/yellow] [dim](type the answer, or an option's number)[/dim]"
            case TurnEnded(status="failed"):
                return f"{super()._line(item)} [dim](kept: longshore dead)[/dim]"
            case _:
                return super()._line(item)

    def _is_line_open(self) -> bool:
        return self._tool is not None or super()._is_line_open()

    def _tick(self, clock: str) -> None:
        """A terminal shows the time go by in one place, a pipe when it was looked at."""
        if self._console.is_terminal:
            self._console.file.write("\b" * len(self._clock))
        self._console.print(f"[dim]{clock}[/dim]", end="")
        self._clock = clock

    def _fitted(self, text: str, taken: int) -> str:
        """On one row, if it is a terminal's."""
        line = Text(" ".join(visible(text).split()))
        if self._console.is_terminal:
            line.truncate(max(self._console.width - taken - _MARKS, _LEAST_PREVIEW), overflow="ellipsis")
        return line.plain

    def _break(self) -> None:
        if self._tool is not None:
            self._tool = None
            self._console.print()
        super()._break()
