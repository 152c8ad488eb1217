"""Installed drivers, found by entry point and made once: `longshore.providers`, `.channels`, `.tools`.

A driver is trusted code; the allow list says which of the installed ones this fleet uses."""

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from adapters.contracts import Channel, Provider, Tool
from adapters.errors import DriverRefusedError, UnknownDriverError

D = TypeVar("D")


class Drivers(Generic[D]):
    """Drivers of one kind, by name. Each is imported and made when it is first asked for."""

    def __init__(self, kind: str, made: Mapping[str, D] | None = None, allowed: Iterable[str] | None = None) -> None:
        self.kind = kind
        self._made: dict[str, D] = dict(made or {})
        self._found = {} if made is not None else {p.name: p for p in entry_points(group=f"longshore.{kind}s")}
        self._allowed = None if allowed is None else set(allowed)

    @property
    def names(self) -> list[str]:
        everything = {*self._found, *self._made}
        return sorted(everything if self._allowed is None else everything & self._allowed)

    @property
    def made(self) -> list[str]:
        """Those that are in use."""
        return list(self._made)

    def get(self, name: str) -> D:
        if name in self._made and (self._allowed is None or name in self._allowed):
            return self._made[name]
        if name not in self._found:
            known = ", ".join(self.names) or "none"
            raise UnknownDriverError(f"there is no {self.kind} {name!r} here; installed: {known}")
        if self._allowed is not None and name not in self._allowed:
            raise DriverRefusedError(
                f"{self.kind} {name!r} is installed but not allowed: add it to LONGSHORE_{self.kind.upper()}S"
            )
        loaded = self._found[name].load()
        # Providers and channels are classes to be made; tools are values.
        self._made[name] = loaded() if isinstance(loaded, type) else loaded
        return self._made[name]


class Registry:
    """All drivers of a process."""

    def __init__(
        self,
        providers: Drivers[Provider] | None = None,
        channels: Drivers[Channel] | None = None,
        tools: Drivers[Tool[Any]] | None = None,
    ) -> None:
        self.providers = providers or Drivers[Provider]("provider")
        self.channels = channels or Drivers[Channel]("channel")
        self.tools = tools or Drivers[Tool[Any]]("tool")
