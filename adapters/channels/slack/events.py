"""What Slack sends us: events, presses of buttons and slash commands, checked and read. It calls nobody.

A mention and the message it is in come as two events with one `ts`, in any order: both are read as the same message."""

import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from adapters.channel_port import Answer, ButtonPress, InboundMessage, InboundRequest, Received
from adapters.channels.signing import same
from adapters.errors import MalformedError, SignatureError

SIGNATURE_HEADER: Final = "x-slack-signature"
TIME_HEADER: Final = "x-slack-request-timestamp"
TOLERANCE_SECONDS: Final = 300
MAX_TIME_DIGITS: Final = 15
MAX_ATTACHMENTS: Final = 20
MAX_WORD: Final = 2000  # of what is said about a file
MAX_FORM_FIELDS: Final = 100
# To whoever presses a button or gives a command, Slack shows what is answered.
QUIET: Final = Answer(b"", "text/plain")

# Other subtypes tell of edits, deletions, joinings and bots.
_SAID: Final = (None, "file_share", "thread_broadcast")
_ID: Final = re.compile(r"[!-~]{1,255}")
# What Slack has marked up: <@U1>, <#C1|name>, <!here>, <https://x|label>.
_MARKED: Final = re.compile(r"<([^<>]*)>")
_MENTION: Final = re.compile(r"<@([A-Z0-9]+)(?:\|[^<>]*)?>")


def check_signature(secret: str, request: InboundRequest) -> None:
    given, stamp = request.headers.get(SIGNATURE_HEADER, ""), request.headers.get(TIME_HEADER, "")
    if not given or not stamp:
        raise SignatureError(f"the request needs the headers {SIGNATURE_HEADER} and {TIME_HEADER}")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= MAX_TIME_DIGITS):
        raise SignatureError(f"the {TIME_HEADER} header is not a time in seconds")
    if abs(time.time() - int(stamp)) > TOLERANCE_SECONDS:
        raise SignatureError("the signature is too old or from the future: check this machine's clock")
    signed = b"v0:" + stamp.encode() + b":" + request.body
    expected = "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    if not same(given, expected):
        raise SignatureError("the signature does not fit the body: check LONGSHORE_SLACK_SIGNING_SECRET")


def read(request: InboundRequest, bot_user: str, team: str) -> Received:
    """`bot_user`: who we are in Slack, or nothing; events say it too. `team`: the only workspace that is heard, or
    nothing."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/x-www-form-urlencoded":
        return _form(request.body, team)
    body = _json(request.body)
    match _id(body, "type"):
        case "url_verification":
            return Received(answer=Answer(json.dumps({"challenge": _id(body, "challenge")}).encode()))
        case "event_callback" if team in ("", body.get("team_id")):
            return _event(_object(body, "event"), _ourselves(body, bot_user))
    return Received()


# --- Events ------------------------------------------------------------------------------------------------------


def _event(event: Mapping[str, Any], ourselves: frozenset[str]) -> Received:
    kind = _id(event, "type")
    if kind not in ("message", "app_mention") or event.get("subtype") not in _SAID:
        return Received()
    place, ts, text = _id(event, "channel"), _id(event, "ts"), event.get("text") or ""
    if not isinstance(text, str):
        raise MalformedError("event.text: text is needed")
    is_direct = event.get("channel_type", "im" if place.startswith("D") else "") == "im"
    mentioned = not ourselves.isdisjoint(_MENTION.findall(text)) if ourselves else kind == "app_mention"
    # An answer to a mention in a channel starts a thread there; a direct chat has none unless people start one.
    thread = _optional_id(event, "thread_ts") or (ts if mentioned and not is_direct else None)
    # A mention and no more stays: an empty text would say nothing.
    said = readable(_without(text, ourselves)).strip() or readable(text).strip()
    attachments = _attachments(event.get("files"))
    if not said and not attachments:
        return Received()
    message = InboundMessage(
        platform_id=place,
        platform_message_id=ts,
        content={"text": said} | ({"attachments": attachments} if attachments else {}),
        thread_id=thread,
        # What a bot said is known by the bot's id, also where it has a user's besides.
        sender_id=_optional_id(event, "bot_id") or _optional_id(event, "user"),
        is_mention=mentioned,
        is_direct=is_direct,
    )
    return Received((message,))


def _ourselves(body: Mapping[str, Any], bot_user: str) -> frozenset[str]:
    """The users we are. An app may also be installed for people, who are somebody else."""
    several = body.get("authorizations")
    given = [one for one in several if isinstance(one, dict)] if isinstance(several, list) else []
    bots = {_optional_id(one, "user_id") for one in given if one.get("is_bot") is True}
    return frozenset(user for user in {*bots, bot_user} if user)


def _attachments(files: Any) -> list[dict[str, Any]]:
    several = [one for one in files if isinstance(one, dict)] if isinstance(files, list) else []
    return [_attachment(one) for one in several[:MAX_ATTACHMENTS]]


def _attachment(file: Mapping[str, Any]) -> dict[str, Any]:
    """What Slack does not say is left out, the address too: files of other organisations have none."""
    words = {
        "name": file.get("name"),
        "media_type": file.get("mimetype"),
        "reference": file.get("url_private_download"),
    }
    found = {name: value for name, value in words.items() if isinstance(value, str) and len(value) <= MAX_WORD}
    size = file.get("size")
    return found | ({"size": size} if type(size) is int and 0 <= size < 1 << 53 else {})


# --- Presses and commands ----------------------------------------------------------------------------------------


def _form(body: bytes, team: str) -> Received:
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
    except ValueError:
        raise MalformedError("the body is not a form") from None
    if "payload" in fields:
        payload = _json(fields["payload"])
        workspace = payload.get("team")
        ours = not team or (isinstance(workspace, dict) and workspace.get("id") == team)
        return Received(presses=_presses(payload) if ours else (), answer=QUIET)
    if "command" in fields:
        ours = team in ("", fields.get("team_id"))
        return Received((_command(fields),) if ours else (), answer=QUIET)
    raise MalformedError("the form has neither a payload nor a command")


def _presses(payload: Mapping[str, Any]) -> tuple[ButtonPress, ...]:
    if _id(payload, "type") != "block_actions":
        return ()
    user, place, actions = _object(payload, "user"), _object(payload, "channel"), payload.get("actions")
    if not isinstance(actions, list):
        raise MalformedError("actions: a list is needed")
    message = _object(payload, "message") if payload.get("message") is not None else {}
    response_url = payload.get("response_url")
    # A button that opens an address, or is not one of ours, brings no token.
    tokens = [one["value"] for one in actions if isinstance(one, dict) and _is_id(one.get("value"))]
    return tuple(
        ButtonPress(
            token=token,
            platform_id=_id(place, "id"),
            sender_id=_id(user, "id"),
            sender_name=_name(user.get("username")),
            thread_id=_optional_id(message, "thread_ts"),
            platform_message_id=_optional_id(message, "ts"),
            handle=response_url if isinstance(response_url, str) else "",
        )
        for token in tokens
    )


def _command(fields: Mapping[str, str]) -> InboundMessage:
    """`/longshore hello` says hello. Without words, it is the command that is said. It is never direct: Slack does not
    say whether a direct chat is ours or one of two others."""
    return InboundMessage(
        platform_id=_id(fields, "channel_id"),
        platform_message_id=_id(fields, "trigger_id"),
        content={"text": readable(fields.get("text", "")).strip() or _id(fields, "command")},
        sender_id=_id(fields, "user_id"),
        sender_name=_name(fields.get("user_name")),
        is_mention=True,
    )


# --- Text --------------------------------------------------------------------------------------------------------


def readable(text: str) -> str:
    """Slack's text without its markup and escapes."""
    parts = _MARKED.split(text)
    return "".join(_unmarked(part) if position % 2 else _unescaped(part) for position, part in enumerate(parts))


def _without(text: str, ourselves: frozenset[str]) -> str:
    """Without the mentions of us, which are there to wake us; `@bot: /help` is `/help`."""
    if not ourselves:
        return text
    mention = rf"<@(?:{'|'.join(map(re.escape, sorted(ourselves)))})(?:\|[^<>]*)?>"
    return re.sub(rf"\A\s*{mention}[\s,:]*| ?{mention}", "", text)


def _unmarked(marked: str) -> str:
    target, _, label = (_unescaped(part) for part in marked.partition("|"))
    match target[:1]:
        case "@":
            return target
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
    # Slack makes a link of every address people write: it is shown as they wrote it.
    written = label in (target, target.partition("://")[2], target.removeprefix("mailto:"))
    return target if not label else label if written else f"{label} ({target})"


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


# --- Fields of hostile JSON --------------------------------------------------------------------------------------


def _json(text: bytes | str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise MalformedError("the body is not a JSON object")
    return body


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise MalformedError(f"{name}: an object is needed")
    return value


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _id(parent: Mapping[str, Any], name: str) -> str:
    value = parent.get(name)
    if not isinstance(value, str) or not _is_id(value):
        raise MalformedError(f"{name}: a plain word is needed")
    return value


def _optional_id(parent: Mapping[str, Any], name: str) -> str | None:
    return _id(parent, name) if parent.get(name) is not None else None


def _name(value: Any) -> str | None:
    printable = "".join(letter for letter in value if letter.isprintable())[:200] if isinstance(value, str) else ""
    return printable or None
