"""`anthropic`: one streamed call of the Messages API. Keys come from the environment, prices from the catalog; the tool
loop, retries and limits are the fleet's. The SDK is imported at the first call: the command line lists providers."""

from collections.abc import AsyncGenerator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from adapters.contracts import Capabilities, Detection, Manifest
from adapters.errors import ErrorClass, ProviderError
from adapters.events import TextDelta, Thinking
from adapters.model_port import ModelFacts, ModelReply, ModelRequest
from adapters.providers import catalog
from adapters.providers.anthropic.reply import Reader
from adapters.providers.anthropic.request import ADAPTER_ID, parameters
from adapters.providers.credentials import (
    CONNECT_SECONDS,
    CONNECTIONS,
    READ_SECONDS,
    Clients,
    Credentials,
    anthropic_credentials,
)
from adapters.providers.wire import NONSENSE

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

VERSION: Final = "1"


class AnthropicProvider:
    manifest = Manifest(
        adapter_id=ADAPTER_ID,
        version=VERSION,
        vendor="anthropic",
        kind="api",
        models=catalog.ANTHROPIC.models,
        capabilities=Capabilities(
            streaming=True, tools=True, resume=True, push=True, images=True, pdfs=True, replays_steps=True
        ),
    )
    default_model = catalog.ANTHROPIC.default

    def __init__(self) -> None:
        self._clients = Clients("anthropic", _client)

    @property
    def account(self) -> str:
        return anthropic_credentials().account

    async def detect(self) -> Detection:
        return Detection(installed=True, version=version("anthropic"), details=anthropic_credentials().state)

    def check(self, options: Mapping[str, Any]) -> None:
        catalog.check_options(ADAPTER_ID, options)

    def facts(self, model: str, options: Mapping[str, Any]) -> ModelFacts:
        return catalog.facts(catalog.ANTHROPIC, model, options)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | Thinking | ModelReply | None, None]:
        credentials = anthropic_credentials()
        credentials.require()
        client, gate = await self._clients.get(credentials)
        from adapters.providers.anthropic.errors import translate

        reader = Reader(request)
        try:
            async with gate:
                stream = await client.messages.create(**parameters(request))
            try:
                async for event in stream:
                    yield reader.take(event)
                yield reader.reply(stream.response.headers)
            except NONSENSE as error:
                raise ProviderError(
                    f"anthropic's stream does not read ({type(error).__name__})", ErrorClass.TRANSPORT
                ) from None
            finally:
                await stream.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, it leaves here as a ProviderError
            raise translate(error, credentials) from None

    async def close(self) -> None:
        await self._clients.close()


def _client(credentials: Credentials) -> "AsyncAnthropic":
    import httpx2
    from anthropic import AsyncAnthropic, DefaultAioHttpClient

    timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    return AsyncAnthropic(
        api_key=credentials.key,
        base_url=credentials.base_url,
        max_retries=0,  # the fleet reschedules, and holds no slot meanwhile
        timeout=timeout,
        open_telemetry={"propagation": False},  # our traces are not the vendor's business
        http_client=DefaultAioHttpClient(
            timeout=timeout, limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        ),
    )
