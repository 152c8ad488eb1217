"""Installed drivers, found by entry point and made once: `longshore.providers`, `.channels`, `.tools`.

A driver is trusted code: it runs in the workers. `packages/trust.py` decides which are let in; the others are named
with the reason and never imported, and do no harm to those that are."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from adapters.errors import AdapterError, BrokenDriverError, RefusedDriverError, UnknownDriverError
from adapters.packages.manifest import Kind
from adapters.packages.signed_import import import_only_signed
from adapters.packages.trust import Allowed, Origin, name_and_version

if TYPE_CHECKING:  # commands that only list driver names start without importing the ports
    from adapters.channel_port import Channel
    from adapters.model_port import AnyProvider
    from adapters.tool_port import Tool

D = TypeVar("D")


@dataclass(frozen=True)
class Refused:
    """A driver that is installed and not let in. `distribution` is its name and version."""

    name: str
    distribution: str
    reason: str


@dataclass(frozen=True)
class _Installed:
    """What the entry points name: those that are let in, by name, and the others."""

    found: dict[str, tuple[EntryPoint, Origin]] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)


class Drivers(Generic[D]):
    """Drivers of one kind, by name. Entry points are read when somebody asks for a name, which takes a look at all that
    is installed; each driver is imported and made when it is first asked for."""

    def __init__(self, kind: Kind, made: Mapping[str, D] | None = None, allowed: Allowed | None = None) -> None:
        """`made`: these and no installed ones."""
        self.kind: Kind = kind
        self._made: dict[str, D] = dict(made or {})
        self._allowed = None if made is not None else Allowed.from_environment() if allowed is None else allowed

    @property
    def names(self) -> list[str]:
        """Those that may be asked for: what was refused is not among them."""
        return sorted({*self._installed.found, *self._made})

    @property
    def refused(self) -> list[Refused]:
        return self._installed.refused

    @property
    def made(self) -> list[str]:
        """Those that are in use."""
        return list(self._made)

    def origin(self, name: str) -> Origin | None:
        """Where it was installed from; None for one that was handed in."""
        found = self._installed.found.get(name)
        return found[1] if found is not None else None

    def missing(self, name: str) -> str:
        """Why there is no driver of that name here, for people."""
        return str(self._absent(name))

    @property
    def working(self) -> dict[str, D]:
        """All that load."""
        found: dict[str, D] = {}
        for name in self.names:
            with suppress(AdapterError):
                found[name] = self.get(name)
        return found

    def get(self, name: str) -> D:
        if name in self._made:
            return self._made[name]
        if name not in self._installed.found:
            raise self._absent(name)
        point, origin = self._installed.found[name]
        if origin.signed_by is not None:
            import_only_signed(origin.distribution, origin.root, origin.files)
        try:
            loaded = point.load()
            # Providers and channels are classes to be made; tools are values.
            self._made[name] = loaded() if isinstance(loaded, type) else loaded
        except AdapterError:
            raise
        except Exception as error:  # other people's code may fail in any way, and the rest must go on
            raise BrokenDriverError(
                f"the {self.kind} {name!r} is installed but does not load: {error or type(error).__name__}"
            ) from error
        return self._made[name]

    @cached_property
    def _installed(self) -> _Installed:
        installed = _Installed()
        if self._allowed is None:
            return installed
        welcome: dict[str, list[tuple[EntryPoint, Origin]]] = {}
        for point in entry_points(group=f"longshore.{self.kind}s"):
            try:
                origin = self._allowed.judge(point, self.kind)
            except RefusedDriverError as error:
                installed.refused.append(_refused(point, str(error)))
            else:
                welcome.setdefault(point.name, []).append((point, origin))
        for name, offers in welcome.items():
            ours = [offer for offer in offers if offer[1].ours]
            owner = ours[0] if ours else offers[0] if len(offers) == 1 else None
            if owner:
                installed.found[name] = owner
            for point, origin in (offer for offer in offers if offer is not owner):
                others = "Longshore itself" if ours else " and ".join(str(offer[1]) for offer in offers)
                reason = f"the {self.kind} {name!r} of {origin} has a name that is taken: by {others}; uninstall one"
                installed.refused.append(_refused(point, reason))
        return installed

    def _absent(self, name: str) -> AdapterError:
        if reasons := [refused.reason for refused in self.refused if refused.name == name]:
            return RefusedDriverError("; ".join(reasons))
        known = ", ".join(self.names) or "none"
        return UnknownDriverError(f"there is no {self.kind} {name!r} here; installed: {known}")


def _refused(point: EntryPoint, reason: str) -> Refused:
    distribution = " ".join(name_and_version(point.dist)) if point.dist else ""
    return Refused(point.name, distribution, reason)


class Registry:
    """All drivers of a process. `allowed` is LONGSHORE_ADAPTERS unless it is handed in."""

    def __init__(
        self,
        providers: "Drivers[AnyProvider] | None" = None,
        channels: "Drivers[Channel] | None" = None,
        tools: "Drivers[Tool[Any]] | None" = None,
        allowed: Allowed | None = None,
    ) -> None:
        self.providers: Drivers[AnyProvider] = providers or Drivers("provider", allowed=allowed)
        self.channels: Drivers[Channel] = channels or Drivers("channel", allowed=allowed)
        self.tools: Drivers[Tool[Any]] = tools or Drivers("tool", allowed=allowed)
