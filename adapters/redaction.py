"""Secrets out of texts: one redactor for logs, events, transcripts, errors and previews.

It knows the secrets of this process's environment, in the forms they are usually written in (`known_secrets.py`), and
the shapes of those nobody told it about (`secret_shapes.py`). How a text is read is in `redaction_stream.py`."""

import functools
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from adapters.known_secrets import LEAST_CHARACTERS, KnownSecrets
from adapters.redaction_stream import StreamRedactor, redacted
from adapters.transcript import Item, to_record

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL", re.IGNORECASE)
_PLACE_NAME: Final = re.compile(r"(?:FILE|PATH|DIR|URL|URI|DSN|HOST|ENDPOINT)$", re.IGNORECASE)
_PATH: Final = re.compile(r"(?:~|\.{1,2})?/[\w./ -]*\.(?:json|pem|key|p12|pub|crt|ini|toml|ya?ml|txt)")
_URL_PASSWORD: Final = re.compile(r"[A-Za-z][\w+.-]*://([^/?#:@\s]*):(.+)@", re.DOTALL)
_EVERYDAY: Final = frozenset(
    ("disabled", "required", "optional", "password", "postgres", "rabbitmq", "changeme", "longshore", "redacted")
)

# Fields of vendors that look like noise: a shape found in one would be chance.
_SEALED: Final = frozenset(("signature", "data", "encrypted_content"))

T = TypeVar("T")


def secrets_in(env: Mapping[str, str]) -> set[str]:
    """The values that must not be shown: of variables named like a secret, and the passwords inside addresses.

    Left alone are paths to secrets, numbers (`MAX_TOKENS`), and passwords that are an everyday word or the user's own
    name: hiding those would garble every text, and they guard nothing."""
    found: set[str] = set()
    for name, given in env.items():
        value = given.strip()
        if match := _URL_PASSWORD.match(value):
            found |= {match[2], unquote(match[2])} - {match[1]}
        elif _SECRET_NAME.search(name) and not _PLACE_NAME.search(name) and not _is_harmless(name, value):
            found |= _in_json(value) or {value}
        else:
            found |= _in_json(value)
    return {value for value in found if len(value) >= LEAST_CHARACTERS and value.lower() not in _EVERYDAY}


def _in_json(value: str) -> set[str]:
    """What a variable that holds a JSON object (LONGSHORE_WEBHOOKS) keeps under secret names."""
    if not value.lstrip().startswith(("{", "[")):
        return set()
    try:
        waiting = [json.loads(value)]
    except ValueError:
        return set()
    found: set[str] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            found |= {v for k, v in part.items() if isinstance(v, str) and _SECRET_NAME.search(k)}
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return found


def _is_harmless(name: str, value: str) -> bool:
    return _PATH.fullmatch(value) is not None or (value.isdigit() and "TOKENS" in name.upper())


@functools.cache
def process_redactor() -> "Redactor":
    """The redactor of this process, from the environment as it is at the first call. Logs are configured before any
    runtime exists, so this is the one place for all; a secret that is set later is known by its shape only."""
    return Redactor(secrets_in(os.environ))


class Redactor:
    """Immutable, so one serves all threads. `values` are secrets of any form; short ones are ignored."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: Final = KnownSecrets(values)

    def text(self, text: str) -> str:
        """The same object, if there is nothing to hide."""
        return redacted(text, self._known)

    def value(self, value: T) -> T:
        """Through dicts (keys too), lists and tuples. What holds no secret comes back as the same object."""
        return self._value(value)  # type: ignore[no-any-return]

    def record(self, item: Item) -> dict[str, Any]:
        """An item of a conversation in its stored form. What only its author can read is kept as it came or not at
        all: a vendor refuses a signed thought that was changed, and does without one that is not there."""
        record = to_record(item)
        content = dict(record["content"])
        opaque = content.pop("opaque", None)
        content = self._value(content)
        if opaque is not None:
            readable = {key: part for key, part in opaque.items() if key not in _SEALED}
            content = content | {"opaque": opaque if self._value(readable) is readable else {}}
        return record | {"content": content}

    def stream(self) -> StreamRedactor:
        return StreamRedactor(self._known)

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                changed = {self._value(key): self._value(item) for key, item in value.items()}
                same = len(changed) == len(value) and all(
                    a is c and b is d for (a, b), (c, d) in zip(value.items(), changed.items(), strict=True)
                )
                return value if same else changed
            case list() | tuple():
                items = [self._value(item) for item in value]
                if all(a is b for a, b in zip(value, items, strict=True)):
                    return value
                if isinstance(value, list):
                    return items
                return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
            case _:
                return value
