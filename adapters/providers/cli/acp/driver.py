"""What the driver of ACP programs (`query.py`) must know of each: how it starts, its model's door, its tools' names."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapters.contracts import Detection, Manifest, Query, QueryInput
from adapters.events import UsageReport
from adapters.providers import catalog
from adapters.providers.cli.installation import Installation
from adapters.providers.cli.key_proxy import KeyProxy, Pass
from adapters.providers.cli.program import place_of, station_of
from adapters.providers.cli.usage_seen import Wire, beyond, used_by_model
from adapters.sandbox.port import Door
from adapters.station import Needs

NOTHING: Final = catalog.Tokens()


@dataclass(frozen=True)
class Doors:
    """What a program reaches, as it sees it: its model, our tools, its folders. Without a model's door, it has none."""

    workspace: str
    home: str
    tools_url: str
    tools_token: str = field(repr=False)
    model_url: str = ""
    model_token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Launch:
    """How an attempt is started. `outside`: not in the workspace, where settings may lie. `prefix` goes before the
    first prompt of a new conversation. `choose` is the model to ask the program for in the protocol's own way. `seed`
    is a conversation laid out among `files`, to be taken for a new one."""

    installation: Installation
    version: str
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    outside: bool = False
    prefix: str = ""
    choose: str = ""
    log_in: str = ""
    seed: str = ""


@dataclass
class Meter:
    """What was used of the model, as its server counts."""

    wire: Wire
    admitted: Pass
    told: dict[str, catalog.Tokens] = field(default_factory=dict)

    def read(self) -> dict[str, catalog.Tokens]:
        """Since it was last read, by the model that was asked."""
        before, self.told = self.told, used_by_model(self.wire, self.admitted.answers)
        return dict(beyond(self.told, before))


class AcpDriver(ABC):
    """A provider whose program speaks ACP."""

    manifest: Manifest
    needs: Needs
    passed_over: frozenset[str] = frozenset()  # what it asks of us without needing it

    def __init__(self) -> None:
        self._proxies: dict[str, KeyProxy] = {}

    @abstractmethod
    async def detect(self) -> Detection: ...

    @abstractmethod
    def check(self, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    async def launch(self, given: QueryInput, doors: Doors) -> Launch: ...

    @abstractmethod
    def proxy(self, options: Mapping[str, Any]) -> tuple[Wire, KeyProxy] | None:
        """The way to its model; None: it has none of ours."""

    @abstractmethod
    def model(self, given: QueryInput) -> str: ...

    @abstractmethod
    def vendor(self, given: QueryInput) -> catalog.Vendor:
        """Whose prices it pays."""

    def usage(self, given: QueryInput, meter: Meter | None, told: catalog.Tokens = NOTHING) -> Iterator[UsageReport]:
        """What the model's server has counted, else what the program says."""
        seen = meter.read() if meter is not None else {}
        for model, used in (seen or {"": told}).items():
            if used != NOTHING:
                yield catalog.usage_report(self.vendor(given), model or self.model(given), used, given.options)

    def worded(self, text: str) -> str:
        """A message, so that the program takes it for one."""
        return text

    def tool_name(self, call_id: str, title: str, kind: str) -> str:
        from adapters.providers.cli.acp.events import name_by_title

        return name_by_title(call_id, title, kind)

    @abstractmethod
    def query(self, given: QueryInput) -> Query: ...

    async def close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()


@asynccontextmanager
async def opened_doors(given: QueryInput, driver: AcpDriver) -> AsyncIterator[tuple[Doors, list[Door], Meter | None]]:
    """The ways to our tools, and to the program's model if it has one of ours."""
    station = station_of(given)
    way = driver.proxy(given.options)
    async with AsyncExitStack() as held:
        tools = await held.enter_async_context(station.tool_doors.open(given.tools))
        tool_port, model_port = station.sandbox.ports(2)
        doors = Doors(*place_of(given), f"http://127.0.0.1:{tool_port}/mcp", tools.token)
        if way is None:
            yield doors, [Door(tool_port, tools.socket)], None
            return
        wire, proxy = way
        admitted = await held.enter_async_context(proxy.admit())
        doors = replace(doors, model_url=f"http://127.0.0.1:{model_port}", model_token=admitted.token)
        opened = [Door(tool_port, tools.socket), Door(model_port, admitted.socket)]
        yield doors, opened, Meter(wire, admitted)
