"""Messages become one prompt: by kind, escaped, in order, and without anything about where they came from."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol
from xml.sax.saxutils import escape, quoteattr

from scheduler.words import duration, zone_or_utc


class Asked(Protocol):
    """The columns of a message that the agent may see."""

    @property
    def seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def content(self) -> dict[str, Any]: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def scheduled_for(self) -> datetime | None: ...
    @property
    def timezone(self) -> str: ...


@dataclass
class TaskFacts:
    """What an agent is told of the tasks of a turn besides their words. `began`: when the turn did, the same for all
    its attempts. `found`: what the script before a task had to say, as JSON, by the message's number."""

    began: datetime
    found: dict[int, str] = field(default_factory=dict)


_CHATS = ("chat", "chat-sdk")
# So much later than its date a task may begin without a word about it.
LATER_SECONDS: Final = 60
# Ends of a line that are no control characters below the space: as people see them, and as JSON may write them too.
_BREAKS: Final = "\x85\u2028\u2029"
_AS_LINES: Final = str.maketrans(dict.fromkeys(_BREAKS, "\n"))
_AS_ESCAPES: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in _BREAKS})


def format_prompt(
    messages: Sequence[Asked], notes: Mapping[int, Sequence[str]] | None = None, facts: TaskFacts | None = None
) -> str:
    """All messages of a turn as one text. Neighbouring chat messages share a <messages> block; every other kind is a
    section under its own heading. `notes` say, by a message's number, what became of its attachments. A command to the
    agent's program is passed as it is, if it stands alone."""
    if is_raw(messages):
        return plain_text(messages[0])
    sections: list[str] = []
    chats: list[str] = []

    def close_chats() -> None:
        if chats:
            sections.append("\n".join(["<messages>", *chats, "</messages>"]))
            chats.clear()

    for message in messages:
        if message.kind in _CHATS:
            chats.append(_chat(message, (notes or {}).get(message.seq)))
            continue
        close_chats()
        sections.append(_section(message, facts))
    close_chats()
    return "\n\n".join(sections)


def is_raw(messages: Sequence[Asked]) -> bool:
    """Whether this is a command to the agent's program (`workers/intake/commands.py`), and nothing else."""
    return len(messages) == 1 and messages[0].content.get("raw") is True


def plain_text(message: Asked, facts: TaskFacts | None = None) -> str:
    """What was asked, without markup: what rules and scripts match on."""
    content = message.content
    match message.kind:
        case "task":
            found = facts.found.get(message.seq) if facts is not None else None
            prompt = str(content.get("prompt") or "")
            return prompt if found is None else f"{prompt}\n\nScript output:\n{found}"
        case "chat" | "chat-sdk":
            return str(content.get("text") or "")
        case _:
            return _json(content)


def _chat(message: Asked, notes: Sequence[str] | None) -> str:
    content = message.content
    author = content.get("author")
    sender = content.get("sender") or (author.get("name") if isinstance(author, dict) else None) or "someone"
    head = f"<message id={_attribute(message.seq)} sender={_attribute(sender)} time={_attribute(_time(message))}"
    head += f" subject={_attribute(subject)}>" if isinstance(subject := content.get("subject"), str) else ">"
    attachments = content.get("attachments")
    lines = [escape(_clean(str(content.get("text") or "")))]
    if notes is not None:
        lines += [escape(_one_line(note)) for note in notes]
    elif isinstance(attachments, list):
        lines += [_attachment(attachment) for attachment in attachments]
    return head + "\n".join(lines) + "</message>"


def _attachment(attachment: Any) -> str:
    if not isinstance(attachment, dict):
        return "[attachment]"
    name = attachment.get("name") or attachment.get("filename") or "unnamed"
    return escape(_clean(f"[{attachment.get('type', 'file')}: {name}]"))


def _section(message: Asked, facts: TaskFacts | None) -> str:
    content = message.content
    match message.kind:
        case "task" if isinstance(stage := content.get("workflow"), dict):
            lines = [f"[WORKFLOW: {escape(_one_line(stage.get('stage', 'stage')))}]"]
            lines.append(_unheaded(escape(_clean(str(content.get("prompt") or "")))))
        case "task":
            lines = ["[SCHEDULED TASK]"]
            if message.scheduled_for is not None:
                lines.append(f"Scheduled for: {_date(message.scheduled_for, message.timezone, facts)}")
            found = facts.found.get(message.seq) if facts is not None else None
            if found is not None:
                lines += ["Script output:", escape(_clean(found.translate(_AS_ESCAPES)))]
            lines += ["Instructions:", _unheaded(escape(_clean(str(content.get("prompt") or ""))))]
        case "webhook":
            source = f"{content.get('source', 'unknown')}/{content.get('event', 'event')}"
            lines = [f"[WEBHOOK: {escape(_one_line(source))}]", escape(_json(content.get("payload", content)))]
        case _:
            lines = [
                "[SYSTEM RESPONSE]",
                f"Action: {escape(_one_line(content.get('action', 'notice')))}",
                f"Status: {escape(_one_line(content.get('status', 'info')))}",
                f"Result: {escape(_json(content.get('result')))}",
            ]
    return "\n".join(lines)


def _time(message: Asked) -> str:
    return message.created_at.strftime("%Y-%m-%d %H:%M:%SZ")


def _date(date: datetime, zone: str, facts: TaskFacts | None) -> str:
    """In the task's own zone, as whoever wrote it thinks of it; and by how much its run is later."""
    words = f"{date.astimezone(zone_or_utc(zone)):%a %Y-%m-%d %H:%M:%S %z} ({escape(_one_line(zone))})"
    later = (facts.began - date).total_seconds() if facts is not None else 0.0
    return f"{words}; begun {duration(later)} later" if later > LATER_SECONDS else words


def _attribute(value: object) -> str:
    return quoteattr(_one_line(value))


def _one_line(value: object) -> str:
    return " ".join(_clean(str(value)).split())


def _clean(text: str) -> str:
    """Control characters are not allowed in XML, and have been used to hide text from people. Whatever ends a line for
    somebody ends it here too."""
    return "".join(
        char for char in text.translate(_AS_LINES) if (char >= " " and char not in "\ufffe\uffff") or char in "\n\t"
    )


def _unheaded(text: str) -> str:
    """A task's own words cannot look like the heading of another section, nor with something before it that nobody
    sees."""
    return re.sub(r"^([^\w!-~\n]*)\[", r"\1&#91;", text, flags=re.MULTILINE)


def _json(value: Any) -> str:
    """On one line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True).translate(_AS_ESCAPES)
