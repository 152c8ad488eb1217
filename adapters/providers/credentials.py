"""Who we are to a vendor: address and key from the environment, read when they are used and never shown; and the
vendor's client, made once for each of them."""

import asyncio
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, Generic, Protocol, TypeVar

from adapters.errors import ErrorClass, ProviderError

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"
GEMINI_URL: Final = "https://generativelanguage.googleapis.com"
PLACEHOLDER: Final = "no-key"  # compatible servers want a header, not a key
MAX_TOLD: Final = 300  # characters of a vendor's text that are shown
OPENINGS: Final = 50  # streams being opened at once; thousands at once run into connect time-outs
CONNECTIONS: Final = 5_000  # the pool must never be what a session waits for
CONNECT_SECONDS: Final = 30.0
READ_SECONDS: Final = 600.0  # the fleet's watchdog is quicker; this one only keeps a lost socket from staying


@dataclass(frozen=True)
class Credentials:
    """`variable` is where the key comes from, for people who have to set it."""

    variable: str
    base_url: str
    key: str = field(repr=False)

    @property
    def account(self) -> str:
        return hashlib.sha256(f"{self.base_url}{self.key}".encode("utf-8", "replace")).hexdigest()[:8]

    @property
    def state(self) -> str:
        """For people: whether there is a key, never what it is."""
        if self.key == PLACEHOLDER:
            return f"{self.variable} is not set; the server at the given base URL is asked without a key"
        return f"{self.variable} is {'set' if self.key else 'not set'}"

    def require(self) -> None:
        """Refuse to ask without a key that a header can carry: the vendor would only say 401."""
        if not self.key:
            raise ProviderError(f"there is no key: set {self.variable}", ErrorClass.AUTH)
        if not (self.key.isascii() and self.key.isprintable()):
            raise ProviderError(f"{self.variable} holds characters that no key has: set it anew", ErrorClass.AUTH)

    def scrub(self, text: str) -> str:
        return text.replace(self.key, "[key]") if self.key else text

    def told(self, text: str) -> str:
        """What may be shown of a vendor's text. Scrubbed before it is cut, or half a key would stay."""
        clean = self.scrub(text)
        return clean if len(clean) <= MAX_TOLD else clean[: MAX_TOLD - 1] + "…"


def anthropic_credentials() -> Credentials:
    return Credentials(
        "ANTHROPIC_API_KEY", _read("ANTHROPIC_BASE_URL").rstrip("/") or ANTHROPIC_URL, _read("ANTHROPIC_API_KEY")
    )


def openai_credentials() -> Credentials:
    """A server that only speaks OpenAI's protocol (Ollama, vLLM) needs no key."""
    base_url = _read("OPENAI_BASE_URL").rstrip("/") or OPENAI_URL
    key = _read("OPENAI_API_KEY")
    return Credentials("OPENAI_API_KEY", base_url, key or ("" if is_openai(base_url) else PLACEHOLDER))


def gemini_credentials() -> Credentials:
    base_url = _read("GOOGLE_GEMINI_BASE_URL").rstrip("/") or GEMINI_URL
    return Credentials("GEMINI_API_KEY", base_url, _read("GEMINI_API_KEY"))


def is_openai(base_url: str) -> bool:
    """Whether this is OpenAI itself, and not a server that speaks its protocol."""
    host = base_url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def _read(variable: str) -> str:
    return os.environ.get(variable, "").strip()


class Closing(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Closing)


class Clients(Generic[C]):
    """One client for each of the credentials, with its gate for opening streams, on the event loop that uses them.

    Clients and gates belong to a loop. When another one comes (tests do that), they are made anew."""

    def __init__(self, sdk: str, make: Callable[[Credentials], C]) -> None:
        self._sdk = sdk
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._made: dict[Credentials, tuple[C, asyncio.Semaphore]] = {}

    async def get(self, credentials: Credentials) -> tuple[C, asyncio.Semaphore]:
        if self._sdk not in sys.modules:
            # Half a second and more: other conversations of this loop go on meanwhile.
            await asyncio.to_thread(import_module, self._sdk)
        if self._loop is not asyncio.get_running_loop():
            await self.close()
        if credentials not in self._made:
            self._loop = asyncio.get_running_loop()
            self._made[credentials] = self._make(credentials), asyncio.Semaphore(OPENINGS)
        return self._made[credentials]

    async def close(self) -> None:
        left, self._made, loop = self._made, {}, self._loop
        for client, _ in left.values():
            if loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client.close(), loop))
            else:
                await client.close()
