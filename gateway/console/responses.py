"""Responses of the console's pages: a rendered template, or only a notice for the page the user is on."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi.responses import HTMLResponse

from gateway.console.rendering.templates import environment
from gateway.console.visitors import Guest

# Puts an answer where the page keeps its notice, whatever the form was aimed at: the page stays as it is.
IN_PLACE: Final = {"HX-Retarget": "#notice", "HX-Reselect": "#notice > *", "HX-Reswap": "innerHTML"}


@dataclass(frozen=True)
class Notice:
    """One sentence for the user about what they have just done."""

    text: str
    bad: bool = False


def show(
    guest: Guest | None,
    template: str,
    *,
    notice: Notice | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """A page, or a part of one. After a form was taken, the page it belongs to is shown again with a `notice`."""
    made = environment().get_template(template)
    return HTMLResponse(made.render(guest=guest, notice=notice, **values), status, headers)


async def show_beside(guest: Guest, template: str, **values: Any) -> HTMLResponse:
    """A page with much in it that others wrote: beside the loop, which everybody else waits for."""
    return await asyncio.to_thread(show, guest, template, **values)


def tell(guest: Guest, text: str, *, bad: bool = False, status: int = 200) -> HTMLResponse:
    """Only a notice: whatever else is on the page stays as it is. For forms that htmx sends."""
    return show(guest, "notice.html", notice=Notice(text, bad), status=status, headers=IN_PLACE)
