"""What a platform cannot show, in what it can: buttons as numbered text, files by name, long texts in parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapters.channel_port import Button, Channel
from adapters.markup.splitting import split

# How a row says what to do; not for those who read it.
_OURS: Final = ("operation", "message", "outbox", "buttons", "answer_code")


@dataclass(frozen=True)
class Part:
    """A message as it goes to the platform. Files and buttons are on the last part."""

    content: dict[str, Any]
    buttons: tuple[Button, ...] = ()
    has_files: bool = False


def parts_of(content: Mapping[str, Any], channel: Channel) -> tuple[Part, ...]:
    """At least one. The same content gives the same parts each time: a retry goes on where the last try stopped."""
    capabilities = channel.capabilities
    text, buttons = with_buttons(content, channel)
    has_files = bool(content.get("outbox"))
    if has_files and not capabilities.files:
        names = ", ".join(str(file["name"]) for file in content["files"])
        text, has_files = f"{text}\n[{names}: files cannot be sent here]".strip(), False
    *first, last = [part for part in split(text, capabilities.max_text, channel.length) if part.strip()] or [text]
    shown = {key: value for key, value in content.items() if key not in _OURS}
    if "text" in content or last:
        shown["text"] = last
    return (*(Part({"text": part}) for part in first), Part(shown, buttons, has_files))


def with_buttons(content: Mapping[str, Any], channel: Channel) -> tuple[str, tuple[Button, ...]]:
    """The text, and what can be pressed below it; where nothing can, the text says how to answer."""
    text, buttons = str(content.get("text") or ""), buttons_of(content)
    if not buttons or channel.capabilities.buttons:
        return text, buttons
    return _with_options(text, buttons, content.get("answer_code")), ()


def buttons_of(content: Mapping[str, Any]) -> tuple[Button, ...]:
    return tuple(
        Button(
            label=str(button["label"]),
            token=str(button.get("token") or ""),
            style=button["style"] if button.get("style") in ("good", "bad") else "plain",
            url=button.get("url"),
        )
        for button in content.get("buttons") or ()
    )


def _with_options(text: str, buttons: Sequence[Button], code: str | None) -> str:
    """Options are numbered as their card numbers them: those that open an address are none. What has a `code` is
    answered by naming it, so that a number said about something else decides nothing."""
    options = [" ".join(button.label.split()) for button in buttons if button.url is None]
    links = [f"{' '.join(button.label.split())}: {button.url}" for button in buttons if button.url is not None]
    blocks = [text, "\n".join(links), "\n".join(f"{number}. {label}" for number, label in enumerate(options, 1))]
    if options:
        how = f" and the code, for example: 1 {code}" if code else "."
        blocks.append(f"Answer with a number{how}")
    return "\n\n".join(block for block in blocks if block)
