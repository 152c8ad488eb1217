"""What is typed into the form of a wiring."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, cast, get_args

from adapters.errors import AdapterError
from models.base import AnyRow, storable
from workers.operations.wirings import FollowUp, Listening, ResponseScope, Strangers, WiringError
from workers.refusals import RefusedError

# Of each field that is a choice, what there is and what that means.
CHOICES: Final[dict[str, Sequence[tuple[str, str]]]] = {
    "scope": (
        ("all", "all messages"),
        ("triggered", "only those that call it"),
        ("allowlisted", "only senders who are named"),
    ),
    "follow_up": (
        ("enqueue", "join the turn when it can"),
        ("interrupt", "interrupt the turn"),
        ("separate", "wait for a turn of their own"),
        ("reject", "are turned away"),
    ),
    "strangers": (
        ("", "as it is in this place"),
        ("strict", "are not heard"),
        ("request_approval", "are let in when an admin says so"),
        ("public", "are heard like everybody"),
    ),
}
_TYPES: Final[dict[str, Any]] = {"scope": ResponseScope, "follow_up": FollowUp, "strangers": Strangers}
_SIGNS: Final = {"pattern": "pattern", "scope": "scope", "sender": "include_senders", "priority": "priority"}


class ChoiceError(WiringError):
    """There is no such choice."""


@dataclass(frozen=True)
class WiringForm:
    """As it is typed. Boxes are empty, or anything if they are ticked."""

    agent: str = ""
    channel: str = ""
    chat: str = ""
    pattern: str = ""
    mention_only: str = ""
    include_senders: str = ""
    exclude_senders: str = ""
    sticky: str = ""
    scope: str = "all"
    per_thread: str = ""
    follow_up: str = "enqueue"
    priority: str = "0"
    strangers: str = ""

    @classmethod
    def of(cls, row: AnyRow) -> "WiringForm":
        rules = row.trigger_rules or {}
        return cls(
            agent=row.folder,
            channel=row.channel_type,
            chat=row.platform_id,
            pattern=rules.get("pattern") or "",
            mention_only="on" if rules.get("mentionOnly") else "",
            include_senders=", ".join(rules.get("includeSenders") or []),
            exclude_senders=", ".join(rules.get("excludeSenders") or []),
            sticky="on" if rules.get("sticky") else "",
            scope=row.response_scope,
            per_thread="on" if row.session_mode == "per-thread" else "",
            follow_up=row.follow_up,
            priority=str(row.priority),
            strangers=row.unknown_sender_policy,
        )

    def at(self, row: AnyRow) -> "WiringForm":
        """The same rules, for the wiring that is there."""
        return replace(self, agent=row.folder, channel=row.channel_type, chat=row.platform_id)

    def listening(self) -> Listening:
        try:
            priority = int(self.priority.strip() or "0")
        except ValueError:
            raise WiringError("the priority is a whole number") from None
        return Listening(
            pattern=storable(self.pattern) or None,
            mention_only=bool(self.mention_only),
            include_senders=_listed(self.include_senders),
            exclude_senders=_listed(self.exclude_senders),
            sticky=bool(self.sticky),
            scope=cast(ResponseScope, self._chosen("scope")),
            per_thread=bool(self.per_thread),
            follow_up=cast(FollowUp, self._chosen("follow_up")),
            priority=priority,
        )

    def policy(self) -> Strangers | None:
        return cast(Strangers, self._chosen("strangers")) if self.strangers else None

    def _chosen(self, field: str) -> str:
        given: str = getattr(self, field)
        if given not in get_args(_TYPES[field]):
            raise ChoiceError(f"there is no such choice for {field.replace('_', ' ')}")
        return given


FIELDS: Final = tuple(field.name for field in fields(WiringForm))


def field_of(error: RefusedError | AdapterError) -> str:
    """Beside which field it is said."""
    text = str(error)
    if isinstance(error, AdapterError) or "the platform" in text:
        return "channel"
    return next((field for sign, field in _SIGNS.items() if sign in text), "chat")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for given in text.split(",") if (part := storable(given.strip())))
