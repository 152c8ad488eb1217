"""The console's templates. Whatever is put into one is escaped, and nothing in it stays unseen (`texts.floor`); only
`markdown` and the charts make markup."""

from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.console.navigation import SECTIONS, shown_to
from gateway.console.rendering.charts import CHARTS
from gateway.console.rendering.texts import floor
from gateway.console.rendering.words import FILTERS
from gateway.console.static_files import address_of

_GLOBALS: Final[dict[str, Any]] = {"static": address_of, "sections": SECTIONS, **CHARTS}


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("gateway.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=floor,
    )
    made.filters.update(FILTERS)
    made.globals.update(_GLOBALS)
    made.tests["shown_to"] = shown_to
    return made
