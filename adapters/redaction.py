"""Secrets out of texts: one redactor for logs, events, transcripts, errors and previews.

It knows the secrets of this process's environment, in the forms they are usually written in, and the shapes of those
nobody told it about. What it finds becomes `[redacted]`, without any part of it. A stream of pieces gives exactly what
the whole text would give, however it was cut. It reads a text once, from left to right, in linear time."""

import base64
import functools
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from adapters.transcript import Item, to_record

LABEL: Final = "[redacted]"
# A shorter value is a word of the language sooner than a secret.
LEAST_CHARACTERS: Final = 8
_HEAD: Final = 4  # so many characters of a known secret make a place worth looking at
_SHORTEST: Final = 3  # no word that makes a place worth looking at is shorter
_CONTEXT: Final = 3  # what a boundary may depend on: `\n` and `%0A` in escaped texts
_END_MARK: Final = 80  # no line that ends a private key is longer

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL", re.IGNORECASE)
_PLACE_NAME: Final = re.compile(r"(?:FILE|PATH|DIR|URL|URI|DSN|HOST|ENDPOINT)$", re.IGNORECASE)
_PATH: Final = re.compile(r"(?:~|\.{1,2})?/[\w./ -]*\.(?:json|pem|key|p12|pub|crt|ini|toml|ya?ml|txt)")
_URL_PASSWORD: Final = re.compile(r"[A-Za-z][\w+.-]*://([^/?#:@\s]*):(.+)@", re.DOTALL)
_EVERYDAY: Final = frozenset(
    ("disabled", "required", "optional", "password", "postgres", "rabbitmq", "changeme", "longshore", "redacted")
)

# Fields of vendors that look like noise: a shape found in one would be chance.
_SEALED: Final = frozenset(("signature", "data", "encrypted_content"))
_ANY: Final = "surrogatepass"  # what is not text in the environment comes as half of a surrogate pair

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
            found.add(value)
    return {value for value in found if len(value) >= LEAST_CHARACTERS and value.lower() not in _EVERYDAY}


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
        forms = {form for value in values if len(value) >= LEAST_CHARACTERS for form in _forms(value)}
        known: dict[str, list[str]] = {}
        for form in sorted(forms, key=lambda form: (-len(form), form)):
            known.setdefault(form[:_HEAD], []).append(form)
        self._known: Final = known
        self._keep: Final = max([_END_MARK, *map(len, forms)])
        words = [*known, *(shape.start for shape in _SHAPES)]
        self._trigger: Final = _trigger(words, digits=True)
        self._whole_trigger: Final = _trigger(words, digits=True, whole=True)
        self._known_trigger: Final = _trigger(known)

    def text(self, text: str) -> str:
        """The same object, if there is nothing to hide."""
        if self._whole_trigger.search(text) is None:
            return text
        stream = self.stream()
        shown = stream.feed(text) + stream.flush()
        return text if shown == text else shown

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

    def stream(self) -> "StreamRedactor":
        return StreamRedactor(self)

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

    def _known_end(self, text: str, at: int, *, final: bool) -> int | None:
        """Where the longest known secret that begins here ends; -1: more text would decide. At the very end of a
        text, also before the `…` of one that was cut, a good part of a secret counts as one."""
        size = len(text)
        head = text[at : at + _HEAD]
        if len(head) < _HEAD:
            return -1 if not final and any(start.startswith(head) for start in self._known) else None
        for form in self._known.get(head, ()):
            if text.startswith(form, at):
                return at + len(form)
            if size - at <= len(form) + 1:
                end = size - 1 if text[-1] == "…" else size
                if form.startswith(text[at:end]) and (end == size or end - at >= LEAST_CHARACTERS):
                    if not final:
                        return -1
                    if end - at >= LEAST_CHARACTERS:
                        return end
        return None

    def _widened(self, text: str, start: int, end: int, *, final: bool) -> int:
        """The end of a secret, when another begins inside it and goes on beyond; -1: more text would decide."""
        at = start
        while (match := self._known_trigger.search(text, at, end)) is not None:
            known = self._known_end(text, match.start(), final=final)
            if known == -1:
                return -1
            end = max(end, known or 0)
            at = match.start() + 1
        return end


class StreamRedactor:
    """Pieces of one text. Holds back only what could be the beginning of a secret: a character or two of ordinary
    text, at most about a thousand, or the length of the longest known secret, of a suspicious one."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._search = redactor._trigger.search
        self._text = ""  # a little of what is decided, then what is not
        self._at = 0  # where the undecided begins
        self._fresh = False  # what ends there was a secret: the next word begins there
        self._inside: _Shape | None = None  # a secret is under way: its label is shown, its rest is dropped

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        self._text = text = self._text + piece
        if self._inside is None and not self._fresh:
            at = self._at
            match = self._search(text, at)
            place = len(text) if match is None else match.start()
            if len(text) - place < _SHORTEST:  # too little to be judged
                decided = place - _CONTEXT if place > _CONTEXT else 0
                self._text, self._at = text[decided:], place - decided
                return text[at:place]
        return self._read(final=False)

    def flush(self) -> str:
        """The rest. What comes after is another text."""
        shown = self._read(final=True) if self._at < len(self._text) else ""
        self._text, self._at, self._fresh, self._inside = "", 0, False, None
        return shown

    def _read(self, *, final: bool) -> str:
        text, at, fresh = self._text, self._at, self._fresh
        shown: list[str] = []
        begin = 0
        while True:
            if self._inside is not None:
                end = self._leave(text, begin, at, final=final)
                if end is None:
                    return "".join(shown)
                at, fresh, self._inside = end, True, None
            place, found = self._find(text, at, fresh=fresh, final=final)
            shown.append(text[at:place])
            if found is None:
                break
            shape, prefix, end = found
            shown += (prefix, LABEL)
            self._inside, begin, at = shape, place, end
        fresh = fresh and place == at
        decided = max(0, place - _CONTEXT)
        self._text, self._at, self._fresh = text[decided:], place - decided, fresh
        return "".join(shown)

    def _leave(self, text: str, begin: int, at: int, *, final: bool) -> int | None:
        """Where the secret that is under way ends; None: not yet. Then only as much of it is kept as may matter."""
        assert self._inside is not None
        end = self._inside.end(text, begin, at)
        if end is None and final:
            return len(text)
        if end is not None:
            end = self._redactor._widened(text, begin, end, final=final)
            if end >= 0:
                return end
        if end is None:
            begin, at = max(begin, len(text) - self._redactor._keep), len(text)
        self._text, self._at = text[begin:], at - begin
        return None

    def _find(self, text: str, at: int, *, fresh: bool, final: bool) -> "tuple[int, _Found | None]":
        """Up to where there is nothing to hide, and the secret that begins there; without one, the rest waits."""
        start = at
        while (match := self._search(text, at)) is not None:
            place = match.start()
            verdict = self._judge(text, place, loose=fresh and place == start, final=final)
            if verdict is not None:
                return place, None if verdict == "wait" else verdict  # type: ignore[return-value]
            at = place + 1
        return len(text), None

    def _judge(self, text: str, at: int, *, loose: bool, final: bool) -> "_Found | str | None":
        known = self._redactor._known_end(text, at, final=final)
        if known == -1:
            return "wait"
        for shape in _BY_FIRST.get(text[at], ()):
            full, partial = shape.loose if loose else shape.strict
            match = full.match(text, at)
            if (match is None or shape.closed) and not final and partial.match(text, at) is not None:
                return "wait"
            if match is not None:
                prefix = self._redactor.text(match[1]) if shape.closed else ""
                return shape, prefix, match.end()
        return (_KNOWN, "", known) if known is not None else None


@dataclass(frozen=True)
class _Shape:
    """What a kind of secret looks like, as patterns for all of it and for a beginning of it that reaches the end of
    what is known of a text. `strict`: not in the middle of a word."""

    start: str = ""
    strict: tuple[re.Pattern[str], re.Pattern[str]] = (re.compile(r"\Z"), re.compile(r"\Z"))
    loose: tuple[re.Pattern[str], re.Pattern[str]] = strict
    run: re.Pattern[str] | None = None  # goes on as long as this fits
    until: re.Pattern[str] | None = None  # goes on to the end of this, or of the text
    closed: bool = False  # has an end of its own; group 1 is shown

    def end(self, text: str, begin: int, at: int) -> int | None:
        if self.until is not None:
            found = self.until.search(text, begin)
            return found.end() if found is not None else None
        if self.run is None:
            return at
        run = self.run.match(text, at)
        end = run.end() if run is not None else at
        return end if end < len(text) else None


_Found = tuple[_Shape, str, int]
_KNOWN: Final = _Shape()
_Part = tuple[str, int, int | None]  # a class of characters, at least and at most so many

_WORD: Final = r"[A-Za-z0-9_-]"
_ALNUM: Final = r"[A-Za-z0-9]"
_WIDE: Final = r"[A-Za-z0-9._~+/=-]"
# Not after a letter, a digit or a hyphen, unless that is the end of an escaped character.
_BOUNDARY: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_SEEN_ENOUGH: Final = 64  # a digit comes within so many characters of a secret, or it is a long word


def _literal(word: str) -> list[_Part]:
    return [(re.escape(letter), 1, 1) for letter in word]


def _counted(part: _Part) -> str:
    kind, least, most = part
    return kind if least == most == 1 else f"{kind}{{{least},{'' if most is None else most}}}"


def _beginning(parts: list[_Part]) -> str:
    """A pattern for every beginning of `parts` that reaches the end of the text."""
    pattern = r"\Z"
    for part in reversed(parts):
        kind, least, most = part
        early = "" if least == most == 1 else rf"|{_counted((kind, 0, most))}\Z"
        pattern = rf"(?:{_counted(part)}{pattern}|\Z{early})"
    return pattern


def _shape(start: str, *parts: _Part, boundary: str = "", digit: bool = False, until: str = "") -> _Shape:
    """A secret that begins with `start` and goes on as its last part does, or up to `until`. `digit`: without one it
    is a word."""
    all_parts = [*_literal(start), *parts]
    kind, least, _ = parts[-1]
    digit_soon = f"(?={kind.replace('0-9', '')}{{0,{_SEEN_ENOUGH - 1}}}[0-9])" if digit else ""
    full = "".join(map(_counted, all_parts[:-1])) + digit_soon + _counted(parts[-1])
    partial = _beginning([*all_parts[:-1], (kind, least, _SEEN_ENOUGH) if digit else parts[-1]])
    return _Shape(
        start,
        strict=(re.compile(boundary + full), re.compile(boundary + partial)),
        loose=(re.compile(full), re.compile(partial)),
        run=None if until else re.compile(f"{kind}*"),
        until=re.compile(until) if until else None,
    )


def _url() -> _Shape:
    """`://user:password@`. The password reaches to the last @ before the host ends."""
    user: _Part = (r"[^\s/?#:@\[\]{}<>\"'`\\|^,]", 0, 256)
    password: _Part = (r"[^\s/?#\[\]{}<>\"'`\\|^]", 0, 512)
    full = re.compile(f"(://{_counted(user)}:){_counted(password)}(?=@)")
    partial = re.compile(_beginning([*_literal("://"), user, (":", 1, 1), password, ("@", 1, 1)]))
    return _Shape("://", strict=(full, partial), loose=(full, partial), closed=True)


_SHAPES: Final = (
    _shape("sk-ant-", (_WORD, 16, None)),
    _shape("sk-proj-", (_WORD, 16, None)),
    _shape("sk-", (_WORD, 20, None), boundary=_BOUNDARY, digit=True),
    *(_shape(f"gh{kind}_", (r"[A-Za-z0-9_]", 20, None)) for kind in "pousr"),
    _shape("github_pat_", (r"[A-Za-z0-9_]", 20, None)),
    *(_shape(f"xox{kind}-", (_WORD, 10, None)) for kind in "abeoprs"),
    _shape("AKIA", (r"[A-Z0-9]", 16, None), boundary=_BOUNDARY),
    _shape("ASIA", (r"[A-Z0-9]", 16, None), boundary=_BOUNDARY, digit=True),
    _shape("AIza", (_WORD, 35, None), boundary=_BOUNDARY),
    _shape("glpat-", (_WORD, 16, None)),
    _shape("npm_", (_ALNUM, 36, None)),
    _shape("hf_", (_ALNUM, 30, None), boundary=_BOUNDARY),
    _shape("eyJ", (_WORD, 8, 1000), *_literal(".eyJ"), (r"[A-Za-z0-9._-]", 8, None), boundary=_BOUNDARY),
    *(_shape(f"{word} ", (_WIDE, 16, None), digit=True) for word in ("Bearer", "bearer", "BEARER", "Basic")),
    _shape("hooks.slack.com/", ("[a-z]", 4, 12), ("/", 1, 1), (r"[A-Za-z0-9/_-]", 16, None)),
    _shape(
        "-----BEGIN ",
        (r"[A-Z0-9 ]", 0, 40),
        *_literal("PRIVATE KEY"),
        until=r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
    ),
    _url(),
)
# A bot's number, and the key that Telegram gave it.
_TELEGRAM: Final = _shape("", ("[0-9]", 6, 12), *_literal(":AA"), (_WORD, 33, None), boundary=r"(?<![0-9])")
_BY_FIRST: Final[dict[str, list[_Shape]]] = {digit: [_TELEGRAM] for digit in "0123456789"}
for _known_shape in _SHAPES:
    _BY_FIRST.setdefault(_known_shape.start[0], []).append(_known_shape)


def _trigger(words: Iterable[str], *, digits: bool = False, whole: bool = False) -> re.Pattern[str]:
    """Finds the places worth a look: one of `words`, or, unless the text is `whole`, a beginning of one at its end. It
    is a tree by first letters, so that the engine skips over ordinary text without trying each word."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    end = "" if whole else r"|\Z"
    branches = [re.escape(letter) + _branch(node, end) for letter, node in sorted(tree.items())]
    if digits:
        early = "" if whole else r"|[0-9]{0,4}\Z"
        branches += [f"{digit}(?:[0-9]{{5,11}}(?::{end}){early})" for digit in range(10)]
    return re.compile("|".join(branches) or r"(?!)")


def _branch(node: dict[str, Any], end: str) -> str:
    if "" in node:
        return ""
    return "(?:" + "|".join(re.escape(letter) + _branch(child, end) for letter, child in node.items()) + end + ")"


def _forms(value: str) -> set[str]:
    """How a secret may be written: as it is, quoted for addresses, escaped for JSON, in base64, also as a part of
    something longer (`user:password`), where its place decides which characters come out."""
    forms = {value, unquote(value), unquote_plus(value), repr(value)[1:-1]}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    for quoted in (quote(value, errors=_ANY), quote(value, safe="", errors=_ANY), quote_plus(value, errors=_ANY)):
        forms |= {quoted, re.sub("%..", lambda match: match[0].lower(), quoted)}
    raw = value.encode("utf-8", _ANY)
    for offset, skipped in ((0, 0), (1, 2), (2, 3)):
        whole, rest = divmod(offset + len(raw), 3)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(b"\x00" * offset + raw).decode()
            forms.add(encoded[skipped : whole * 4 + rest])
            if offset == 0:
                forms |= {encoded, encoded.rstrip("=")}
    return {form for form in forms if len(form) >= LEAST_CHARACTERS}
