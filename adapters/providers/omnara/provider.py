"""`omnara`: a relay to agents that run in Omnara, hosted or one's own. Optional: nothing here depends on it.

The first message of a conversation launches an agent from a configuration made in Omnara, which sets its model,
instructions and tools; later ones are its inputs. Our tools, system prompt and workspace are not for it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput
from adapters.providers.omnara import settings

if TYPE_CHECKING:
    from adapters.providers.omnara.query import OmnaraQuery

VERSION: Final = "1"
API_VERSION: Final = "0.1.0"  # of the published description this was written from


class OmnaraProvider:
    manifest = Manifest(
        adapter_id="omnara",
        version=VERSION,
        vendor="omnara",
        kind="api",
        capabilities=Capabilities(streaming=True, resume=True, push=True, approvals=True),
    )

    def __init__(self, stall_seconds: float = 35.0) -> None:
        """`stall_seconds`: the server sends a heartbeat more often than that, or it hangs."""
        self._stall_seconds = stall_seconds

    async def detect(self) -> Detection:
        found = settings.credentials()
        if not found.key:
            return Detection(installed=False, details=f"{found.state}: set it to a key made in Omnara's console")
        return Detection(installed=True, version=API_VERSION, details=found.state)

    def check(self, options: Mapping[str, Any]) -> None:
        settings.check_options(options)

    def query(self, given: QueryInput) -> "OmnaraQuery":
        # Only now: the HTTP client takes a moment to import, and the command line lists providers.
        from adapters.providers.omnara.query import OmnaraQuery

        return OmnaraQuery(given, self._stall_seconds)
