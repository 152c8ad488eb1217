"""What the API's routes share: ids in paths, pages of lists, the plain sentence, and refusals as statuses."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import HTTPException, Query
from fastapi import Path as InPath
from pydantic import BaseModel, Field

from adapters.errors import AdapterError
from models.browsing import Point
from workers.consent.waiting import NotYoursError
from workers.refusals import RefusedError

T = TypeVar("T")
R = TypeVar("R")

MOST: Final = 200
EXCERPT: Final = 20_000  # characters of JSON, of what may be of any length
_NO_CURSOR: Final = "after: this is no cursor; give `next` of the page before"
RowId = Annotated[str, InPath(max_length=36, pattern=r"^[A-Za-z0-9_:-]+$", description="an id")]
Limit = Annotated[int, Query(ge=1, le=MOST, description="at most so many")]
After = Annotated[
    str | None, Query(max_length=250, pattern=r"^[A-Za-z0-9_:.-]+$", description="`next` of the page before this one")
]


class Page(BaseModel, Generic[T]):
    """Part of a list."""

    items: list[T]
    next: str | None = Field(None, description="give it as `after` for what follows; null: this was the end")


def page(rows: Sequence[R], limit: int, show: Callable[[R], T], cursor: Callable[[R], object]) -> Page[T]:
    """Of one row more than the page has, if there are more."""
    shown = rows[:limit]
    return Page(items=[show(row) for row in shown], next=str(cursor(shown[-1])) if len(rows) > limit else None)


def read_point(after: str | None) -> Point | None:
    """The cursor of a list with the latest first."""
    if after is None:
        return None
    if (point := Point.parse(after)) is None:
        raise HTTPException(422, _NO_CURSOR)
    return point


def read_number(after: str | None) -> int:
    """The cursor of a list whose rows are numbered."""
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= 9):
        raise HTTPException(422, _NO_CURSOR)
    return int(after)


def excerpt(value: Any) -> tuple[Any, bool]:
    """JSON as it is; of one that is too long its beginning, as text, and that it was cut."""
    text = json.dumps(value, ensure_ascii=False)
    return (value, False) if len(text) <= EXCERPT else (text[:EXCERPT], True)


class Told(BaseModel):
    """What was done."""

    text: str


@contextmanager
def yours() -> Iterator[None]:
    """What is none of the caller's is 404, or 403 where they may know of it."""
    try:
        yield
    except NotYoursError as error:
        raise HTTPException(403 if error.known else 404, str(error)) from None


@contextmanager
def sensible() -> Iterator[None]:
    """What cannot be set like that is 422, and what there is none of 404. How things stand is left to be 409."""
    try:
        yield
    except AdapterError as error:
        raise HTTPException(422, str(error)) from None
    except RefusedError as error:
        if error.kind not in ("form", "nobody"):
            raise
        raise HTTPException(422 if error.kind == "form" else 404, str(error)) from None
