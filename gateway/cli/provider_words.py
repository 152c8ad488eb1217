"""What is known of a provider, in words with markup: what it can do, where it comes from, how it is."""

from datetime import UTC, datetime

from adapters.contracts import Detection, Manifest
from adapters.packages.trust import Origin
from gateway.cli.desk import shown
from gateway.figures import span, tokens, until
from workers.governor import BucketState
from workers.provider_states import Health


def version_words(manifest: Manifest, detection: Detection, program: str) -> str:
    """Of the driver, and of the SDK or program by which it works."""
    software = "SDK" if manifest.kind == "api" else program
    found = f", {software} {detection.version}" if software and detection.version else ""
    return f"{manifest.version}, by {manifest.vendor}{found}"


def origin_words(origin: Origin | None) -> str:
    if origin is None or origin.ours:
        return "Longshore"
    if origin.signed_by is not None:
        return f"{shown(origin)}, [green]signed[/green] by {shown(origin.vendor)} [dim]({origin.signed_by})[/dim]"
    return f"{shown(origin)}, [yellow]not checked for a signature[/yellow] [dim](allowed by its id)[/dim]"


def health_words(one: Health) -> str:
    why = f": {one.detail}" if one.detail else ""
    account = f" [dim]({shown(one.account)})[/dim]" if one.account else ""
    if one.state == "ok":
        return f"[green]ok[/green]{account}"
    if one.until is not None and one.until > datetime.now(UTC):
        return f"[yellow]{one.state} for {until(one.until)}[/yellow]{shown(why)}{account}"
    return f"[yellow]{one.state}, to be tried again[/yellow]{shown(why)}{account}"


def limit_words(state: BucketState) -> str:
    parts = [
        f"{kind.replace('_', ' ')} {tokens(int(max(left.available, 0)))} of {tokens(int(left.limit))}"
        for kind, left in state.left.items()
    ]
    if state.paused_seconds:
        parts.append(f"nobody calls for {span(state.paused_seconds)}")
    return f"{state.key.model or 'all models'}: {', '.join(parts) or 'nothing known'}"
