"""What somebody wrote in a mail, without the mails before it that programs append. Losing words of the sender is worse
than keeping some of others: what is not clearly history stays."""

import re
from typing import Final

# Everything below one of these is an earlier mail.
_ORIGINAL: Final = re.compile(
    r"\s*-{2,}\s*(?:original message|ursprüngliche nachricht|message d'origine|mensaje original|messaggio originale"
    r"|oorspronkelijk bericht)\s*-{2,}\s*",
    re.IGNORECASE,
)
# The line above a quote. It has a date, so a digit.
_WROTE: Final = re.compile(
    r"(?:on|am|le|el|il|op|den)\b(?=.*\d).{0,400}"
    r"(?:wrote|schrieb.{0,200}|a écrit|escribió|ha scritto|schreef.{0,200}|skrev.{0,200})\s?:",
    re.IGNORECASE,
)
_HEADING: Final = re.compile(r"\s*\*?(?:from|von|de|da|van)\s?:\*?\s.*\S", re.IGNORECASE)
_SENT: Final = re.compile(
    r"\s*\*?(?:sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden)\s?:\*?\s.*", re.IGNORECASE
)
# What programs put below, and people by habit. A number that answers a question stands alone without it.
_MAX_SIGNATURE: Final = 12  # lines
_SENT_FROM: Final = re.compile(
    r"(?:sent from my|get outlook for|von meinem .* gesendet|gesendet von|envoyé de mon|enviado desde).{0,60}",
    re.IGNORECASE,
)
_RULE: Final = re.compile(r"\s*[_-]{5,}\s*")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


def readable(text: str) -> str:
    """Lines that end alike, and no characters that cannot be stored or seen."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return _CONTROL.sub("", "\n".join(line.rstrip() for line in lines)).strip("\n")


def without_history(text: str) -> str:
    """Cuts what lies below a mark of an earlier mail, a quote that nothing follows, and a signature. A quote with an
    answer below it stays, since it is what the answer is to; so does a mail that is nothing but a quote."""
    lines = text.split("\n")
    lines = lines[: _beginning_of_history(lines)]
    last = len(lines)
    while last and (not lines[last - 1].strip() or lines[last - 1].startswith(">")):
        last -= 1
    if last < len(lines) and any(line.startswith(">") for line in lines[last:]):
        lines = lines[: last - _length_of_attribution(lines[:last])]
    return "\n".join(_without_signature(lines)).strip("\n") or text


def _without_signature(lines: list[str]) -> list[str]:
    marks = [number for number, line in enumerate(lines) if line.rstrip() == "--"]
    if marks and len(lines) - marks[-1] <= _MAX_SIGNATURE:
        lines = lines[: marks[-1]]
    while lines and (not lines[-1].strip() or _SENT_FROM.fullmatch(lines[-1].strip()[:200])):
        lines = lines[:-1]
    return lines


def _beginning_of_history(lines: list[str]) -> int:
    for number, line in enumerate(lines):
        if len(line) > 500:
            continue
        if _ORIGINAL.fullmatch(line):
            return number
        # Outlook's: From and Sent of the earlier mail, below a line or an empty one.
        if _HEADING.fullmatch(line) and number + 1 < len(lines) and _SENT.fullmatch(lines[number + 1][:500]):
            ruled = number > 0 and _RULE.fullmatch(lines[number - 1])
            if ruled or number == 0 or not lines[number - 1].strip():
                return number - 1 if ruled else number
    return len(lines)


def _length_of_attribution(lines: list[str]) -> int:
    """How many of the last lines say who wrote what is quoted below them. Programs break that in up to three."""
    for length in (1, 2, 3):
        above = lines[-length:]
        if len(above) == length and _WROTE.fullmatch(" ".join(line.strip() for line in above)[:1000]):
            return length
    return 0
