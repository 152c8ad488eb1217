"""A conversation's events as somebody who takes part in it wants to see them: little about turns, all that is said."""

from rich.console import Console

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
from gateway.cli.desk import shown
from gateway.cli.stream import EventPrinter
from gateway.cli.wrapping import Wrapper

ME = "you"
_HISTORY_CHARACTERS = 400
_ASKING_TOOL = "ask_user_question"


class ChatPrinter(EventPrinter):
    def __init__(self, console: Console) -> None:
        super().__init__(console, usage=True)
        self._tool: str | None = None  # the call whose mark stands at the end of the current line
        self._wrapper: Wrapper | None = None
        self._style = ""
        self._parked = False
        self._approval = False  # what it waits for is one

    def show(self, item: Envelope) -> None:
        match item.event:
            case ToolCall(name=name) if name == _ASKING_TOOL:
                pass  # the question itself follows
            case ToolCall(id=call, name=name, preview=preview):
                self._break()
                details = f" [dim]{shown(preview)}[/dim]" if preview else ""
                self._console.print(f"[cyan]⚙ {shown(name)}[/cyan]{details} [dim]…[/dim] ", end="", soft_wrap=True)
                self._tool = call
            case ToolResult(name=name, ok=True) if name == _ASKING_TOOL:
                pass
            case ToolResult(id=call, ok=ok) if call == self._tool:
                self._console.print("[green]✓[/green]" if ok else "[red]✗[/red]")
                self._tool = None
            case ToolProgress(id=call, elapsed=elapsed) if call == self._tool:
                self._console.print(f"[dim]{elapsed:g} s …[/dim] ", end="")
            case ToolProgress():
                pass  # of one of several at once
            case ApprovalRequested():
                self._approval = True
                super().show(item)
            case TurnEnded(status=status):
                self._break()
                super().show(item)
                self._parked, self._approval = status == "parked", False
            case _:
                super().show(item)

    def said(self, said: Said) -> None:
        """A message that is no event: another person's, or one the agent sent on the way."""
        self._break()
        mark = "[green]│[/green]" if said.sender is None else f"[magenta]{shown(said.sender)} ›[/magenta]"
        self._console.print(f"{mark} {shown(said.text)}", soft_wrap=not self._console.is_terminal)

    def echo(self, text: str) -> None:
        self._break()
        self._console.print(f"[bold cyan]›[/bold cyan] {shown(text)}", soft_wrap=True)

    def history(self, messages: list[Said]) -> None:
        for said in messages:
            text = said.text if len(said.text) <= _HISTORY_CHARACTERS else said.text[: _HISTORY_CHARACTERS - 1] + "…"
            mark = "│" if said.sender is None else "›" if said.sender == ME else f"{said.sender} ›"
            self._console.print(f"[dim]{shown(mark)} {shown(text)}[/dim]", soft_wrap=not self._console.is_terminal)

    def note(self, words: str) -> None:
        """Something of ours, with markup."""
        self._break()
        self._console.print(words, soft_wrap=True)

    def _line(self, item: Envelope) -> str | None:
        match item.event:
            case TurnStarted(attempt=attempt, provider=provider):
                # After an answer it goes on: not worth a word.
                again = attempt > 1 and not self._parked
                return f"[dim]▶ attempt {attempt}, on {shown(provider)}[/dim]" if again else None
            case MessagesJoined() | Failed():
                return None  # their texts are shown, and the turn's end says why
            case QuestionAsked(title=title, text=text, options=options):
                choices = "".join(f"\n  [bold]{n}[/bold] {shown(option)}" for n, option in enumerate(options, 1))
                return f"[yellow]?[/yellow] [bold]{shown(title)}[/bold]\n  {shown(text)}{choices}"
            case TurnEnded(status="completed"):
                return f"[dim]{words}[/dim]" if (words := self._spent()) else None
            case TurnEnded(status="waiting", error_class=ErrorClass.RATE_LIMIT, retry_in=seconds):
                return f"[yellow]rate limited, again in {seconds or 0:g} s[/yellow]"
            case TurnEnded(status="parked") if self._approval:
                return "[yellow]⏸ waiting for approval[/yellow]"
            case TurnEnded(status="parked", error_class=error_class) if error_class is not ErrorClass.BUDGET:
                return "[yellow]⏸ waiting for you[/yellow] [dim](type the answer, or an option's number)[/dim]"
            case TurnEnded(status="failed"):
                return f"{super()._line(item)} [dim](kept: longshore dead)[/dim]"
            case _:
                return super()._line(item)

    def _write(self, text: str, style: str) -> None:
        """In a terminal, broken between words; a pipe gets the text as it is."""
        if self._console.is_terminal:
            if self._wrapper is None:
                self._wrapper = Wrapper(self._console.width, column=2)
            self._style, text = style, self._wrapper.feed(text)
        super()._write(text, style)

    def _break(self) -> None:
        if self._wrapper is not None:
            wrapper, self._wrapper = self._wrapper, None
            super()._write(wrapper.flush(), self._style)
        if self._tool is not None:
            self._tool = None
            self._console.print()
        super()._break()
