"""Who looks at the console: the browser's cookie, what it may be used for, and what its user may look at.

The same two questions as for the API (`gateway.http.callers`): the scope of the sign-in, and the standing of its user.
Every form is asked for the token of its sign-in here, so that no page can forget to."""

import hmac
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, HTTPException, Request

from gateway.console.security import COOKIE, CSRF_FIELD, CSRF_HEADER, SAFE_METHODS, csrf_token
from models.database import Database
from models.sign_ins import Visitor, find_visitor
from models.tokens import SCOPES, Scope
from models.web_chats import WEB
from workers.access import Reach, reach_of

THEME_COOKIE: Final = "longshore_theme"
_THEMES: Final = ("light", "dark")
_FORGED: Final = "the form is too old, or not from this sign-in, and nothing was done: load the page again"

Sight = Literal["own", "some", "all"]  # what is theirs, what an agent of theirs does, the whole fleet


class SignedOutError(Exception):
    """Nobody is signed in here, or no longer."""


@dataclass(frozen=True)
class Guest:
    """Who looks, as templates know them. `csrf` goes into every form."""

    visitor: Visitor
    reach: Reach
    csrf: str
    theme: str | None
    path: str

    @property
    def user_id(self) -> str:
        return self.visitor.user_id

    @property
    def name(self) -> str:
        return self.user_id.removeprefix(f"{WEB}:")

    @property
    def sees(self) -> Sight:
        if self.reach.everything:
            return "all"
        return "some" if self.reach.agent_groups else "own"

    def can(self, scope: Scope) -> bool:
        return scope in self.visitor.scopes


async def _guest(request: Request) -> Guest:
    db: Database = request.state.house.db
    secret = request.cookies.get(COOKIE, "")
    found = await db.read(lambda conn: find_visitor(conn, secret)) if secret else None
    if found is None:
        raise SignedOutError
    request.state.is_known = True  # for `gateway.http.rates`
    reach = await db.read(lambda conn: reach_of(conn, found.user_id))
    guest = Guest(found, reach, csrf_token(secret), theme_of(request), request.url.path)
    request.state.guest = guest
    if request.method not in SAFE_METHODS and not hmac.compare_digest(await _token(request), guest.csrf.encode()):
        raise HTTPException(403, _FORGED)
    return guest


SIGNED_IN: Final = Depends(_guest)  # a dependency of routes: any signed-in user


def needs(scope: Scope, sees: Sight = "own") -> Any:
    """A dependency of routes: a guest whose sign-in has the scope. `sees`: `some`, that they are admin of an agent at
    least; `all`, of everything."""

    async def guest(found: Annotated[Guest, SIGNED_IN]) -> Guest:
        if not found.can(scope):
            raise HTTPException(403, f"your sign-in is not for that: it lacks the scope {scope!r} ({SCOPES[scope]})")
        if sees == "all" and found.sees != "all":
            raise HTTPException(403, "this is for owners and global admins")
        if sees == "some" and found.sees == "own":
            raise HTTPException(403, "this is for owners and admins; yours are your chat and your questions")
        return found

    return Depends(guest)


def theme_of(request: Request) -> str | None:
    """What they chose; None: as the system has it."""
    chosen = request.cookies.get(THEME_COOKIE)
    return chosen if chosen in _THEMES else None


async def _token(request: Request) -> bytes:
    said = request.headers.get(CSRF_HEADER)
    if said is None:
        given = (await request.form()).get(CSRF_FIELD)
        said = given if isinstance(given, str) else ""
    return said.encode("utf-8", "replace")
