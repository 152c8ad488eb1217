"""Events as lines on a terminal: text as it is written, tools with a mark, ends with a reason."""

from rich.console import Console
from rich.text import Text

from adapters.errors import ErrorClass
from adapters.events import (
    ApprovalRequested,
    ControlChanged,
    DeliveryChanged,
    DiffAvailable,
    Envelope,
    Failed,
    FilesTouched,
    Message,
    MessagesJoined,
    Progress,
    QuestionAsked,
    Result,
    Stderr,
    TextDelta,
    Thinking,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UsageReport,
)
from gateway.cli.desk import shown, visible
from gateway.cli.wrapping import Wrapper
from gateway.figures import spent
from models.lookup import short

ASKING_TOOL = "ask_user_question"
_THOUGHT = "[dim italic]…"


class EventPrinter:
    """`prefix` shows which session (and agent, if it is told) a line belongs to, for a reader of many. `usage` shows
    with each turn's end what it took."""

    def __init__(self, console: Console, *, prefix: bool = False, usage: bool = False) -> None:
        self._console = console
        self._prefix = prefix
        self._usage = usage
        self._agent = ""  # whose event is being shown
        self._used: list[UsageReport] = []
        self._writing: tuple[str | None, bool] | None = None  # whose text or thought stands on the current line
        self._wrapper: Wrapper | None = None
        self._style = ""
        self._asked: set[str | None] = set()  # turns whose question or wish stands there
        self._thoughts: dict[str | None, str] = {}
        self._written: dict[str | None, str] = {}  # what of each turn stands there, as its pieces came
        self._line_text = ""  # of it, what stands on the current line
        self._asides: list[str] = []  # lines of what others told meanwhile: they stand after it

    def show(self, item: Envelope, agent: str = "") -> None:
        self._agent = agent
        if isinstance(item.event, Thinking):
            self._think(item, item.event.text)
            return
        if thought := self._thoughts.pop(item.turn, None):
            self._print(f"{self._head(item)}{_THOUGHT} {shown(thought)}[/]")
        if isinstance(item.event, TurnEnded):
            self._written.pop(item.turn, None)
        if isinstance(item.event, UsageReport):
            self._used.append(item.event)
        elif isinstance(item.event, TextDelta):
            # Where many write at once, whole texts are shown instead of their pieces.
            if not self._prefix:
                self._delta(item, item.event.text)
        elif isinstance(item.event, Message | Result) and self._is_writing(item):
            self._finish_text(item, item.event.text)
        elif isinstance(item.event, DeliveryChanged | FilesTouched | DiffAvailable) and self._is_line_open():
            if (line := self._line(item)) is not None:
                self._asides.append(self._head(item) + line)
        elif (line := self._line(item)) is not None:
            self._break()
            self._print(self._head(item) + line)
        self._remember(item)

    def close(self) -> None:
        self._break()

    def _remember(self, item: Envelope) -> None:
        match item.event:
            case QuestionAsked() | ApprovalRequested():
                self._asked.add(item.turn)
            case TurnEnded():
                self._asked.discard(item.turn)

    def _print(self, line: str) -> None:
        """On a terminal, broken between words; a pipe gets the line as it is."""
        self._console.print(line, soft_wrap=not self._console.is_terminal)

    def _think(self, item: Envelope, text: str) -> None:
        """Thoughts come in pieces, too, and no event says when one is whole: what comes next does."""
        if self._prefix:
            self._thoughts[item.turn] = self._thoughts.get(item.turn, "") + text
        else:
            self._delta(item, text, thought=True)

    def _delta(self, item: Envelope, text: str, *, thought: bool = False) -> None:
        if self._writing != (item.turn, thought):
            self._break()
            self._console.print(f"{self._head(item)}{f'{_THOUGHT}[/]' if thought else '[green]│[/green]'} ", end="")
            self._writing = item.turn, thought
        # Control characters could move the cursor or colour what follows: a model's text is not trusted.
        self._write(visible(text), "dim italic" if thought else "")
        if not thought:
            self._written[item.turn] = self._written.get(item.turn, "") + text
            self._line_text += text

    def _finish_text(self, item: Envelope, whole: str) -> None:
        """The whole text follows its pieces. A reader who has fallen behind is not shown all of them."""
        if whole.startswith(self._line_text):
            self._delta(item, whole[len(self._line_text) :])
        self._break()
        if (line := self._line(item)) is not None:
            self._print(self._head(item) + line)

    def _write(self, text: str, style: str) -> None:
        """In a terminal, broken between words; a pipe gets the text as it is."""
        if self._console.is_terminal:
            if self._wrapper is None:
                self._wrapper = Wrapper(self._console.width, column=2)
            self._style, text = style, self._wrapper.feed(text)
        self._console.print(Text(text, style), end="", soft_wrap=True)

    def _is_writing(self, item: Envelope) -> bool:
        return self._writing == (item.turn, False)

    def _is_line_open(self) -> bool:
        return self._writing is not None

    def _was_written(self, item: Envelope, text: str) -> bool:
        """Results come with the turn's end, after whatever else there was to tell. Where an answer is several texts,
        its pieces do not say what is put between them."""
        return "".join(text.split()) in "".join(self._written.get(item.turn, "").split())

    def _line(self, item: Envelope) -> str | None:
        match item.event:
            case TurnStarted(number=number, attempt=attempt, provider=provider):
                again = f", attempt {attempt}" if attempt > 1 else ""
                return f"[dim]▶ turn {number} on {shown(provider)}{again}[/dim]"
            case TurnEnded(status="completed"):
                return f"[dim]■ done{self._spent('  ')}[/dim]"
            case TurnEnded(status="waiting", error=error, retry_in=seconds):
                return f"[yellow]■ {shown(error or 'failed')}; again in {seconds or 0:g} s[/yellow]"
            case TurnEnded(status="parked", error_class=ErrorClass.BUDGET, error=error):
                return f"[yellow]⏸ {shown(error or 'the budget is spent')}[/yellow]"
            case TurnEnded(status="parked") if item.turn in self._asked:
                return "[yellow]⏸ waiting for somebody's answer[/yellow]"
            case TurnEnded(status="parked", error=error):
                return f"[yellow]⏸ waiting{': ' * bool(error)}{shown(error or '')}[/yellow]"
            case ApprovalRequested(id=approval, summary=summary):
                hint = f"\n  [dim]longshore approve {short(approval)} (or deny)[/dim]" if approval else ""
                return f"[yellow]![/yellow] {shown(summary)}{hint}"
            case TurnEnded(status="handed_over", error=error):
                return f"[yellow]■ {shown(error or 'handed over to another worker')}[/yellow]"
            case QuestionAsked(id=question, title=title, text=text, options=options):
                choices = "".join(f"\n  [bold]{n}[/bold] {shown(option)}" for n, option in enumerate(options, 1))
                hint = f"[dim]longshore answer {short(question)} TEXT[/dim]"
                return f"[yellow]?[/yellow] [bold]{shown(title)}[/bold] {shown(text)}{choices}\n  {hint}"
            case MessagesJoined(messages=messages):
                return f"[dim]+ message {', '.join(map(str, messages))}[/dim]"
            case TurnEnded(status="cancelled", error=error):
                return f"[yellow]■ {shown(error or 'cancelled')}[/yellow]"
            case TurnEnded(status=status, error=error):
                return f"[red]■ {status}: {shown(error or '')}[/red]"
            case ToolCall(name=name) if name == ASKING_TOOL:
                return f"[cyan]⚙ {shown(name)}[/cyan]"  # the question itself follows
            case ToolCall(name=name, preview=preview):
                return f"[cyan]⚙ {shown(name)}[/cyan] [dim]{shown(preview)}[/dim]"
            case ToolResult(name=name, ok=ok):
                return f"[cyan]  {'✓' if ok else '✗'} {shown(name)}[/cyan]"
            case ToolProgress(name=name, elapsed=elapsed):
                return f"[dim]  … {shown(name)} {elapsed:g} s[/dim]"
            case Message(text=text) | Result(text=text) if not self._was_written(item, text):
                # Nobody saw it being written: show it whole.
                return f"[green]│[/green] {shown(text)}"
            case Progress(text=text) | Stderr(text=text):
                return f"[dim]· {shown(text)}[/dim]"
            case FilesTouched(paths=paths):
                return f"[dim]✎ {shown(', '.join(paths))}[/dim]"
            case DiffAvailable(summary=summary):
                return f"[dim]± {shown(summary)}[/dim]"
            case ControlChanged(mode=mode, by=by):
                return f"[yellow]⌨ {shown(by)}: {mode}[/yellow]"
            case Failed(message=message):
                return f"[red]✗ {shown(message)}[/red]"
            case DeliveryChanged(status=status, channel=channel, error=error) if status != "delivered":
                return f"[yellow]✉ {status} ({shown(channel)}): {shown(error or '')}[/yellow]"
            case DeliveryChanged(files=files) if files:
                return f"[green]✉[/green] {shown(', '.join(files))}"
            case DeliveryChanged(channel=channel) if self._prefix:
                return f"[dim]✉ delivered ({shown(channel)})[/dim]"
            case _:
                return None

    def _spent(self, before: str = "") -> str:
        """What the calls since the last turn's end took, and forget it."""
        used, self._used = self._used, []
        if not self._usage or not used:
            return ""
        costs = [report.cost_usd for report in used if report.cost_usd is not None]
        read = sum(report.read_tokens for report in used)
        said = sum(report.output_tokens for report in used)
        unknown = len(costs) < len(used)
        return before + spent(read, said, sum(costs) if costs else None, partly_unknown=unknown)

    def _head(self, item: Envelope) -> str:
        if not self._prefix:
            return ""
        return f"[dim]{short(item.session)}{' ' * bool(self._agent)}{shown(self._agent)}[/dim] "

    def _break(self) -> None:
        if self._wrapper is not None:
            wrapper, self._wrapper = self._wrapper, None
            self._console.print(Text(wrapper.flush(), self._style), end="", soft_wrap=True)
        if self._writing is not None:
            self._console.print()
            self._writing = None
        self._line_text = ""
        asides, self._asides = self._asides, []
        for line in asides:
            self._print(line)
