"""What every page of the console works with: the house, who looks, and showing a template to them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio
from fastapi.responses import HTMLResponse

from gateway.console.rendering.templates import environment
from gateway.console.visitors import Guest, Sight, Visitors
from gateway.http.api.streams import Streams
from gateway.http.news import News
from models.tokens import Scope
from workers.house import House
from workers.provider_states import Lookout

# Puts an answer where the page keeps its notice, whatever the form was aimed at: the page stays as it is.
IN_PLACE: Final = {"HX-Retarget": "#notice", "HX-Reselect": "#notice > *", "HX-Reswap": "innerHTML"}


@dataclass(frozen=True)
class Notice:
    """One sentence to whoever has just done something."""

    text: str
    bad: bool = False


@dataclass(frozen=True)
class Console:
    """`client`: the broker's Redis, for what is only there: its lists."""

    house: House
    news: News
    streams: Streams
    client: redis.asyncio.Redis
    lookout: Lookout
    visitors: Visitors

    def needs(self, scope: Scope, sees: Sight = "own") -> Any:
        return self.visitors.needs(scope, sees)

    def show(
        self,
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

    async def show_beside(self, guest: Guest, template: str, **values: Any) -> HTMLResponse:
        """A page with much in it that others wrote: beside the loop, which everybody else waits for."""
        return await asyncio.to_thread(self.show, guest, template, **values)

    def tell(self, guest: Guest, text: str, *, bad: bool = False, status: int = 200) -> HTMLResponse:
        """Only a notice: whatever else is on the page stays as it is. For forms that htmx sends."""
        return self.show(guest, "notice.html", notice=Notice(text, bad), status=status, headers=IN_PLACE)
