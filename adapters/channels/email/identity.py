"""Who wrote a mail. Anybody can write any From: it is believed only when our own mail server vouches for its domain, in
the Authentication-Results (RFC 8601) that it has put on top.

Everything here says no when in doubt. A sender nobody vouches for has no id at all: one could be given a role, by a
one-time code or a kind owner, and everybody could have it then."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.errors import MessageError
from email.header import decode_header, make_header
from email.utils import getaddresses
from typing import Final

from adapters.channels.email.settings import ADDRESS_FORM, MAX_ADDRESS

Headers = Sequence[tuple[str, str]]  # lower-case names; values unfolded, from the top

_LONGEST: Final = 4000  # characters of a header that are looked at
_ONE_ADDRESS: Final = re.compile(
    rf'(?P<name>"(?:[^"\\]|\\.)*"|[^"<>@,;:()\\]*)\s*<(?P<inside>{ADDRESS_FORM})>|(?P<bare>{ADDRESS_FORM})'
)
_CLAUSE: Final = re.compile(r'(?:[\w./-]+=(?:"(?:[^"\\]|\\.)*"|[^\s";=][^\s"]*|)(?:\s+|$))+')
_FACT: Final = re.compile(r'([\w./-]+)=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(frozen=True)
class Author:
    address: str  # lower-case
    name: str | None
    verified: bool

    @property
    def sender_id(self) -> str | None:
        return self.address if self.verified else None

    @property
    def shown_name(self) -> str:
        """For agents and people, who would believe a name."""
        return self.name or self.address if self.verified else f"{self.address} (unverified)"


def author_of(headers: Headers, *, authserv: str, trust_from: bool) -> Author | None:
    """None if there is no address to answer to. `trust_from` counts only without an `authserv`."""
    given = [value for name, value in headers if name == "from"]
    whole = _ONE_ADDRESS.fullmatch(given[0]) if len(given) == 1 and len(given[0]) <= _LONGEST else None
    if whole is None:
        # Several, or written so that another program might read another one out of it.
        address = _first_address(given)
        return Author(address, None, verified=False) if address else None
    address = (whole["inside"] or whole["bare"]).lower()
    if len(address) > MAX_ADDRESS:
        return None
    name = plain_line(decoded(re.sub(r"\\(.)", r"\1", (whole["name"] or "").strip().strip('"'))), 200) or None
    verified = _vouched_for(headers, authserv, address.rpartition("@")[2]) if authserv else trust_from
    return Author(address, name, verified)


def plain_line(text: str, limit: int) -> str:
    """One line of visible characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())[:limit]


def decoded(value: str) -> str:
    """A header's words, whatever encoding they claim."""
    try:
        return str(make_header(decode_header(value[:_LONGEST])))
    except (MessageError, ValueError, LookupError):
        return value[:_LONGEST]


def _first_address(given: Sequence[str]) -> str | None:
    for _, address in getaddresses([value[:_LONGEST] for value in given]):
        if len(address) <= MAX_ADDRESS and re.fullmatch(ADDRESS_FORM, address):
            return address.lower()
    return None


def _vouched_for(headers: Headers, authserv: str, domain: str) -> bool:
    """Only the topmost one of our server's name counts: the sender may have put more of them below it. One that cannot
    be read may be that one, made so by what the sender let it say: nothing below it is believed."""
    for name, value in headers:
        if name == "authentication-results":
            clauses = _clauses(value)
            if not clauses:
                return False
            if clauses[0].partition(" ")[0].strip('"') == authserv:
                return _passes(clauses[1:], domain)
    return False


def _passes(clauses: Sequence[str], domain: str) -> bool:
    """DMARC decides, and has to say about whom; where a domain has no policy, a signature or a sending server of that
    domain will do."""
    results: list[tuple[str, str, dict[str, str]]] = []
    for clause in clauses:
        said = _FACT.findall(clause) if _CLAUSE.fullmatch(clause) else []
        facts = {key: value.strip('"').rpartition("@")[2] for key, value in said[1:]}
        if not said or len(facts) != len(said) - 1:
            return False
        results.append((said[0][0].partition("/")[0], said[0][1], facts))
    policies = [(result, facts.get("header.from")) for method, result, facts in results if method == "dmarc"]
    if any(result not in ("none", "bestguesspass") for result, _ in policies):
        return all(policy == ("pass", domain) for policy in policies)
    passed = [(method, facts) for method, result, facts in results if result == "pass"]
    signed = [facts.get("header.d") or facts.get("header.i", "") for method, facts in passed if method == "dkim"]
    sent = [facts.get("smtp.mailfrom", "") for method, facts in passed if method == "spf"]
    return any(_aligned(vouching, domain) for vouching in signed + sent)


def _aligned(vouching: str, domain: str) -> bool:
    """Whether it is the domain itself, or one above it. One below it may be somebody else's."""
    return vouching == domain or ("." in vouching and domain.endswith(f".{vouching}"))


def _clauses(value: str) -> list[str]:
    """What stands between semicolons, lower-case and without comments; nothing at all if quotes or parentheses do not
    match."""
    parts, depth, quoted, escaped = [""], 0, False, False
    for char in value[: _LONGEST + 1].lower():
        if escaped or char == "\\":
            escaped = not escaped
        elif char == '"' and depth == 0:
            quoted = not quoted
        elif char == "(" and not quoted:
            depth += 1
            continue
        elif char == ")" and not quoted:
            depth -= 1
            if depth < 0:
                return []
            continue
        elif char == ";" and not quoted and depth == 0:
            parts.append("")
            continue
        if depth == 0:
            parts[-1] += char
    if depth or quoted or len(value) > _LONGEST:
        return []
    stripped = [" ".join(part.split()) for part in parts]
    return stripped if stripped[-1] else stripped[:-1]
