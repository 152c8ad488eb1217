"""The buttons of a card that an agent sends (`send_card`): read from its `actions`, whatever it wrote there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.base import storable
from models.cards import token

MAX_BUTTONS: Final = 20
MAX_LABEL: Final = 80
MAX_VALUE: Final = 2000
MAX_URL: Final = 2000


@dataclass(frozen=True)
class Offer:
    """The buttons of an agent's card: as they are sent, and what a press of each says."""

    buttons: tuple[dict[str, str], ...]
    options: tuple[dict[str, str], ...]


def offer_of(card: Any, card_id: str) -> Offer:
    """One with an address opens that and says nothing."""
    actions = card.get("actions") if isinstance(card, dict) else None
    buttons: list[dict[str, str]] = []
    options: list[dict[str, str]] = []
    for action in (actions if isinstance(actions, list) else [])[:MAX_BUTTONS]:
        label, value, url = _read_action(action)
        if not label:
            continue
        if url:
            buttons.append({"label": label, "url": url})
        else:
            options.append({"label": label, "value": value or label})
            buttons.append({"label": label, "token": token(card_id, len(options))})
    return Offer(tuple(buttons), tuple(options))


def _read_action(action: Any) -> tuple[str, str, str]:
    if isinstance(action, str):
        action = {"label": action}
    if not isinstance(action, dict):
        return "", "", ""
    label, value = (_first_text(action, names) for names in (("label", "text", "title", "value"), ("value",)))
    url = _first_text(action, ("url",))
    is_address = url.startswith(("https://", "http://")) and len(url) <= MAX_URL
    return " ".join(label.split())[:MAX_LABEL], value[:MAX_VALUE], url if is_address else ""


def _first_text(action: dict[str, Any], names: Sequence[str]) -> str:
    return next((storable(action[name]) for name in names if isinstance(action.get(name), str) and action[name]), "")
