"""`longshore providers`: what is installed and by whom, what it can do, how it is, and who works for it."""

import asyncio
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer
from redis.exceptions import RedisError
from rich.table import Table

from adapters.contracts import Detection, Manifest
from adapters.errors import AdapterError
from adapters.packages.trust import Origin
from adapters.registry import AnyProvider, Refused
from gateway.cli.desk import Desk, out, print_json, run, shown
from gateway.cli.listening import listeners
from gateway.cli.provider_words import (
    capability_words,
    health_state,
    health_words,
    limit_words,
    origin_words,
    version_words,
)
from gateway.keys import missing_key
from models.base import AnyRow
from models.fleet import all_health
from workers.bells import agent_queue
from workers.events import redis_client
from workers.governor import BucketState, RedisBuckets

LIMITS_SECONDS = 3.0
DETECT_SECONDS = 20.0  # programs are started to ask for their version
_MARKS = {
    "ok": "[green]✓[/green]",
    "warning": "[yellow]![/yellow]",
    "problem": "[red]✗[/red]",
    "absent": "[dim]–[/dim]",
    "refused": "[dim]✗[/dim]",
}


@dataclass
class Seen:
    """Everything known of one provider. `error` is set instead of the rest if it does not load, `refused` if it is
    not let in. `program` is the one it leads, if that is always the same."""

    name: str
    workers: list[str] = field(default_factory=list)
    origin: Origin | None = None
    refused: Refused | None = None
    manifest: Manifest | None = None
    detection: Detection | None = None
    program: str = ""
    missing_key: str | None = None
    default_model: str | None = None
    is_default: bool = False
    error: str | None = None
    health: list[AnyRow] = field(default_factory=list)
    limits: list[BucketState] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.refused is not None:
            return "refused"
        if self.error is not None or self.detection is None:
            return "problem"
        if not self.detection.installed:
            return "problem" if self.is_default else "absent"
        well = not self.missing_key and self.workers and all(health_state(row) == "ok" for row in self.health)
        return "ok" if well else "warning"


def providers(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """List providers: where from, installed or not, key, capabilities, health, workers, rate limits."""

    async def command(desk: Desk) -> None:
        seen = await _look(desk)
        if as_json:
            print_json([_as_json(one) for one in seen])
            return
        for one in seen:
            _print(one)

    run(command)


async def _look(desk: Desk) -> list[Seen]:
    health = await desk.db.read(all_health)
    limits = await _limits(desk)
    found = []
    for name in desk.registry.providers.names:
        one = Seen(name, await listeners(desk, name), desk.registry.providers.origin(name))
        one.is_default = name == desk.settings.default_provider
        one.health = [row for row in health if row.provider == name]
        one.limits = [state for state in limits if state.key.provider == name]
        found.append(one)
    # All at once: those that are programs take a second each.
    await asyncio.gather(*(_ask(desk, one) for one in found))
    return found + [Seen(refused.name, refused=refused) for refused in desk.registry.providers.refused]


async def _ask(desk: Desk, one: Seen) -> None:
    """What the provider says about itself."""
    try:
        provider: AnyProvider = desk.registry.providers.get(one.name)
        async with asyncio.timeout(DETECT_SECONDS):
            detection = await provider.detect()
        one.manifest, one.detection = provider.manifest, detection
    except AdapterError as error:
        one.error = str(error)
    except TimeoutError:
        one.error = f"it did not say within {DETECT_SECONDS:g} s whether it is installed"
    except Exception as error:  # noqa: BLE001 - other people's code: the rest of the list is wanted all the same
        one.error = f"it failed when it was asked about itself: {type(error).__name__}: {error}"
    else:
        one.default_model = getattr(provider, "default_model", None)
        one.missing_key = missing_key(one.name)
        one.program = getattr(getattr(provider, "needs", None), "program", "")


async def _limits(desk: Desk) -> list[BucketState]:
    """Nice to know, so nothing fails for want of it."""
    if not desk.settings.redis_url:
        return []
    client = redis_client(desk.settings.redis_url)
    try:
        async with asyncio.timeout(LIMITS_SECONDS):
            return await RedisBuckets(client).show()
    except (RedisError, OSError, TimeoutError, ValueError):
        return []
    finally:
        await client.aclose()


def _print(one: Seen) -> None:
    default = " [dim](the default)[/dim]" if one.is_default else ""
    out.print(f"{_MARKS[one.state]} [bold]{shown(one.name)}[/bold]{default}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for what, words in _lines(one):
        table.add_row(f"    {what}", words)
    out.print(table)


def _lines(one: Seen) -> list[tuple[str, str]]:
    if one.refused is not None:
        return [("from", shown(one.refused.distribution)), ("refused", f"[yellow]{shown(one.refused.reason)}[/yellow]")]
    origin = ("from", origin_words(one.origin))
    if one.error is not None or one.manifest is None or one.detection is None:
        return [origin, ("error", f"[red]{shown(one.error or 'unknown')}[/red]")]
    version = ("version", shown(version_words(one.manifest, one.detection, one.program)))
    details = shown(one.detection.details or "-")
    can = ("can", capability_words(one.manifest.capabilities))
    if one.state == "absent":
        return [version, origin, ("installed", f"no: {details}"), can]
    if one.missing_key:
        details = f"[yellow]{details}[/yellow]"
    lines = [
        version,
        origin,
        ("installed", "yes" if one.detection.installed else "[red]no[/red]"),
        ("key" if one.manifest.kind == "api" else "details", details),
        *([("model", shown(one.default_model))] if one.default_model else []),
        can,
        ("health", ", ".join(map(health_words, one.health)) or "[green]ok[/green] [dim](no trouble was noted)[/dim]"),
    ]
    nobody = f"[yellow]none listens on {agent_queue(one.name)}[/yellow]"
    lines.append(("workers", shown(", ".join(one.workers)) if one.workers else nobody))
    return lines + [("limits", shown(limit_words(state))) for state in one.limits]


def _as_json(one: Seen) -> dict[str, Any]:
    manifest, detection = one.manifest, one.detection
    return {
        "id": one.name,
        "state": one.state,
        "error": one.error,
        "default": one.is_default,
        "version": manifest and manifest.version,
        "vendor": manifest and manifest.vendor,
        "kind": manifest and manifest.kind,
        "origin": _origin_json(one),
        "refused": one.refused and one.refused.reason,
        "installed": bool(detection and detection.installed),
        "software_version": detection and detection.version,
        "details": detection and detection.details,
        "missing_key": one.missing_key,
        "default_model": one.default_model,
        "models": list(manifest.models) if manifest else [],
        "capabilities": asdict(manifest.capabilities) if manifest else {},
        "health": [dict(row._mapping) for row in one.health],
        "workers": one.workers,
        "limits": [asdict(state) for state in one.limits],
    }


def _origin_json(one: Seen) -> dict[str, Any]:
    if one.refused is not None:
        return {"distribution": one.refused.distribution, "ours": False, "signed_by": None}
    origin = one.origin
    return {
        "distribution": str(origin) if origin else None,
        "ours": origin is None or origin.ours,
        "signed_by": origin and origin.signed_by,
    }
