"""What is typed into the form of an agent, and the changes that makes of it. What they may be is decided by
`workers/operations/group_settings.py`.

Secrets are never shown again: `(set)` stands for one, and left as it is, it stays as it is."""

import json
from dataclasses import dataclass, fields
from typing import Any, Final

import yaml

from adapters.errors import AdapterError
from gateway.cli.group_settings import NONE, parse_budget
from models.base import AnyRow, storable
from workers.operations.group_settings import (
    DEFAULT,
    Changes,
    GroupSettings,
    GroupSettingsError,
    OptionValue,
    with_secrets,
    without_secrets,
)
from workers.refusals import RefusedError

_MAX_CHARACTERS: Final = 100_000


class FieldError(GroupSettingsError):
    """What is typed into a field cannot be read."""

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.field = field

    def __reduce__(self) -> tuple[type["FieldError"], tuple[str, str]]:
        return FieldError, (self.reason, self.field)


@dataclass(frozen=True)
class GroupForm:
    """As it is typed; empty is the default, or none."""

    folder: str = ""
    name: str = ""
    provider: str = ""
    model: str = ""
    fallbacks: str = ""
    daily_usd: str = ""
    user_daily_usd: str = ""
    options: str = ""
    policy: str = ""

    @classmethod
    def of(cls, row: AnyRow) -> "GroupForm":
        settings = GroupSettings.of_row(row)
        return cls(
            folder=row.folder,
            name=settings.name,
            provider=settings.provider or "",
            model=settings.model or "",
            fallbacks=", ".join(settings.fallbacks),
            daily_usd=_amount(settings.budget.get("daily_usd")),
            user_daily_usd=_amount(settings.budget.get("user_daily_usd")),
            options=_typed(without_secrets(settings.options)),
            policy=_typed(without_secrets(settings.policy)),
        )

    def changes(self, before: GroupSettings) -> Changes:
        """What differs from how it is."""
        name = storable(self.name.strip()) or (self.folder if not before.name else "")
        provider, model = storable(self.provider.strip()), storable(self.model.strip())
        fallbacks = tuple(part for given in self.fallbacks.split(",") if (part := storable(given.strip())))
        policy = with_secrets(_mapping("policy", self.policy), before.policy)
        return Changes(
            name=name if name != before.name else None,
            provider=(provider or DEFAULT) if provider != (before.provider or "") else None,
            model=(model or DEFAULT) if model != (before.model or "") else None,
            fallbacks=fallbacks if list(fallbacks) != before.fallbacks else None,
            budget=self._budget(before),
            options=_changed_options(_mapping("options", self.options), before.options),
            policy=policy if policy != before.policy else None,
        )

    def _budget(self, before: GroupSettings) -> dict[str, float | None]:
        typed = {"daily_usd": self.daily_usd, "user_daily_usd": self.user_daily_usd}
        asked: dict[str, float | None] = {}
        for name, text in typed.items():
            try:
                asked[name] = parse_budget("the limit", text.strip() or NONE)
            except GroupSettingsError as error:
                raise FieldError(str(error), name) from None
        return {name: usd for name, usd in asked.items() if usd != before.budget.get(name)}


FIELDS: Final = tuple(field.name for field in fields(GroupForm))


def field_of(error: RefusedError | AdapterError) -> str:
    """Beside which field it is said."""
    if isinstance(error, FieldError):
        return error.field
    text = str(error)
    if "folder" in text or "already an agent" in text:
        return "folder"
    beginnings = {
        "fallback": "fallbacks",
        "policy": "policy",
        "option": "options",
        "the name": "name",
        "the model": "model",
    }
    return next((field for start, field in beginnings.items() if text.startswith(start)), "provider")


def _amount(usd: float | None) -> str:
    return "" if usd is None else f"{usd:g}"


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _typed(value: dict[str, Any]) -> str:
    """As YAML, which is how people write such things."""
    return yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100) if value else ""


def _mapping(field: str, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    if len(text) > _MAX_CHARACTERS:
        raise FieldError(f"this is too long: at most {_MAX_CHARACTERS} characters are taken", field)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise FieldError("write it out: a `*name` that stands for another part is not taken", field)
        plain: Any = json.loads(json.dumps(yaml.safe_load(text), allow_nan=False))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise FieldError(f"this does not read as YAML{where}", field) from None
    except (TypeError, ValueError, RecursionError):
        raise FieldError("something in it cannot be kept, such as a date: put it in quotes", field) from None
    if not isinstance(plain, dict):
        raise FieldError("write one `name: value` a line", field)
    return plain


def _changed_options(typed: dict[str, Any], before: dict[str, Any]) -> dict[str, OptionValue | None]:
    """What was shown and is typed again is as it was; what is no longer there is taken away."""
    meant = with_secrets(typed, before)
    changed: dict[str, OptionValue | None] = {
        name: OptionValue(value) for name, value in meant.items() if name not in before or before[name] != value
    }
    return changed | {name: None for name in before if name not in typed}
