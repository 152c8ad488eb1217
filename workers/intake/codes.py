"""One-time codes: an operator makes one at the command line, a person writes it to the bot, and is somebody then.

A code is good once, for a short time, in a direct chat. Whoever guesses learns nothing: a code that never was, one that
is over and one that was used get the same answer."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.groups import AgentGroup, ensure_messaging_group
from models.invitations import (
    burn_invitations,
    count_wrong_codes,
    note_wrong_code,
    put_invitation,
    use_invitation,
)
from models.people import grant, remember_dm, remember_user
from workers.consent.strangers import let_in
from workers.house import Done

# Crockford's: no I, L, O or U. Twelve of them are 60 bits.
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BY: Final = "a one-time code"
MAX_WRONG: Final = 5
MAX_BURNT: Final = 1000  # of one text
WRONG_SECONDS: Final = 3600.0
WRONG: Final = "This code is not valid. A code works once and for a short time: ask for a new one."
_TOO_MANY: Final = "This code is not valid, and it was one too many: for an hour, no code of yours is looked at."
_IN_PUBLIC: Final = (
    "Others can read this, so that code will not work any more. Ask for a new one and write it to me directly."
)
# Anywhere in a text: what is written around a code would be kept with it. Keyboards make other dashes of it.
_CODE: Final = re.compile(
    r"(?<![0-9A-Z])LS[-‐-―−]([0-9A-Z]{4})[-‐-―−]([0-9A-Z]{4})[-‐-―−]([0-9A-Z]{4})(?![0-9A-Z])",
    re.IGNORECASE | re.ASCII,
)
_READ_AS: Final = str.maketrans("ILO", "110")


def new_code() -> str:
    letters = "".join(secrets.choice(ALPHABET) for _ in range(12))
    return f"LS-{letters[:4]}-{letters[4:8]}-{letters[8:]}"


def codes_in(text: str) -> list[str]:
    """The codes in a text, as they were made."""
    return ["LS-" + "-".join(found.groups()).upper().translate(_READ_AS) for found in _CODE.finditer(text)]


async def invite(conn: AsyncConnection, code: str, role: str, agent_group_id: str | None, seconds: float) -> None:
    await put_invitation(conn, _hash(code), role, agent_group_id, seconds)


@dataclass(frozen=True)
class Visitor:
    """Who writes a code, and where. `user_id` None: nobody vouches for them."""

    user_id: str | None
    name: str | None
    channel_type: str
    platform_id: str
    is_direct: bool


async def redeem(conn: AsyncConnection, codes: Sequence[str], visitor: Visitor) -> Done | None:
    """The first of them counts; where others can read, all are burnt, whoever wrote them. None: nothing is answered,
    because this person has guessed too often, or is nobody in particular. What they wrote before they were somebody
    goes on."""
    if not visitor.is_direct:
        await burn_invitations(conn, {_hash(code) for code in codes[:MAX_BURNT]}, "nobody: it was shown to others")
    if visitor.user_id is None:
        return None
    wrong = await count_wrong_codes(conn, visitor.user_id, WRONG_SECONDS)
    if wrong >= MAX_WRONG:
        return None
    if not visitor.is_direct:
        await note_wrong_code(conn, visitor.user_id)
        return Done(_IN_PUBLIC)
    invitation = await use_invitation(conn, _hash(codes[0]), visitor.user_id)
    if invitation is None:
        await note_wrong_code(conn, visitor.user_id)
        return Done(_TOO_MANY if wrong + 1 == MAX_WRONG else WRONG)
    await remember_user(conn, visitor.user_id, visitor.channel_type, visitor.name)
    await grant(conn, visitor.user_id, invitation.role, invitation.agent_group_id, BY)
    place = await ensure_messaging_group(conn, visitor.channel_type, visitor.platform_id)
    await remember_dm(conn, visitor.user_id, visitor.channel_type, place)
    done = await let_in(conn, visitor.user_id, invitation.agent_group_id, BY)
    done.text = await _welcome(conn, invitation)
    return done


async def _welcome(conn: AsyncConnection, invitation: AnyRow) -> str:
    of = "this fleet"
    if invitation.agent_group_id is not None:
        query = select(AgentGroup.folder).where(AgentGroup.id == invitation.agent_group_id)
        of = (await conn.execute(query)).scalar_one()
    role = {"owner": "an owner", "admin": "an admin", "member": "a member"}[invitation.role]
    return f"Welcome. You are now {role} of {of}. What you are asked to decide comes to this chat."


def _hash(code: str) -> str:
    # Plain: 60 random bits that are good for an hour are not guessed, however fast the hash is.
    return hashlib.sha256(code.encode()).hexdigest()
