"""Installed drivers, found by entry point and made once: `longshore.providers`, `.channels`, `.tools`.

A driver is trusted code: it runs in the workers."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from adapters.contracts import Channel, Provider
from adapters.errors import BrokenDriverError, UnknownDriverError
from adapters.model_port import ModelProvider
from adapters.tool_port import Tool

D = TypeVar("D")
AnyProvider = Provider | ModelProvider


class Drivers(Generic[D]):
    """Drivers of one kind, by name. Each is imported and made when it is first asked for."""

    def __init__(self, kind: str, made: Mapping[str, D] | None = None) -> None:
        self.kind = kind
        self._made: dict[str, D] = dict(made or {})
        self._found = {} if made is not None else {p.name: p for p in entry_points(group=f"longshore.{kind}s")}

    @property
    def names(self) -> list[str]:
        return sorted({*self._found, *self._made})

    @property
    def made(self) -> list[str]:
        """Those that are in use."""
        return list(self._made)

    def get(self, name: str) -> D:
        if name in self._made:
            return self._made[name]
        if name not in self._found:
            known = ", ".join(self.names) or "none"
            raise UnknownDriverError(f"there is no {self.kind} {name!r} here; installed: {known}")
        try:
            loaded = self._found[name].load()
        except (ImportError, AttributeError) as error:
            raise BrokenDriverError(f"the {self.kind} {name!r} is installed but does not load: {error}") from error
        # Providers and channels are classes to be made; tools are values.
        self._made[name] = loaded() if isinstance(loaded, type) else loaded
        return self._made[name]


class Registry:
    """All drivers of a process."""

    def __init__(
        self,
        providers: Drivers[AnyProvider] | None = None,
        channels: Drivers[Channel] | None = None,
        tools: Drivers[Tool[Any]] | None = None,
    ) -> None:
        self.providers = providers or Drivers[AnyProvider]("provider")
        self.channels = channels or Drivers[Channel]("channel")
        self.tools = tools or Drivers[Tool[Any]]("tool")
