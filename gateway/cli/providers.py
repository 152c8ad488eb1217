"""`longshore providers`: what is installed and by whom, what it can do, how it is, and who works for it."""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from gateway.cli.desk import AsJson, Desk, out, print_json, run, shown
from gateway.cli.provider_words import health_words, limit_words, origin_words, version_words
from workers.bells import agent_queue
from workers.events import redis_client
from workers.provider_states import Seen, capability_words, look_at_providers

_MARKS = {
    "ok": "[green]✓[/green]",
    "warning": "[yellow]![/yellow]",
    "problem": "[red]✗[/red]",
    "absent": "[dim]–[/dim]",
    "refused": "[dim]✗[/dim]",
}


def providers(as_json: AsJson = False) -> None:
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
    client = redis_client(desk.settings.redis_url) if desk.settings.redis_url else None
    try:
        return await look_at_providers(desk, client)
    finally:
        if client is not None:
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
    can = ("can", ", ".join(capability_words(one.manifest.capabilities)))
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
        "health": [asdict(health) for health in one.health],
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
