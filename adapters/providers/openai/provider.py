"""`openai`: one streamed call of OpenAI, or of any server that speaks its protocol. OpenAI itself is asked over the
Responses API, all others over Chat Completions, unless the option `api` says otherwise. The tool loop, retries and
limits are the fleet's. The SDK is imported at the first call: the command line lists providers."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from adapters.contracts import Capabilities, Detection, Manifest
from adapters.errors import ErrorClass, ProviderError
from adapters.events import TextDelta, Thinking
from adapters.model_port import ModelFacts, ModelReply, ModelRequest
from adapters.providers import catalog
from adapters.providers.credentials import (
    CONNECT_SECONDS,
    CONNECTIONS,
    READ_SECONDS,
    Clients,
    Credentials,
    is_openai,
    openai_credentials,
)
from adapters.providers.openai import chat, responses
from adapters.providers.openai.responses import ADAPTER_ID
from adapters.providers.wire import NONSENSE, allowances

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

VERSION: Final = "1"
APIS: Final = ("responses", "chat")


class OpenAIProvider:
    default_model = catalog.OPENAI.default

    def __init__(self) -> None:
        self._clients = Clients("openai", _client)

    @property
    def manifest(self) -> Manifest:
        """PDFs need the Responses API."""
        pdfs = _api({}, openai_credentials()) == "responses"
        return replace(_MANIFEST, capabilities=replace(_MANIFEST.capabilities, pdfs=pdfs))

    @property
    def account(self) -> str:
        return openai_credentials().account

    async def detect(self) -> Detection:
        return Detection(installed=True, version=version("openai"), details=openai_credentials().state)

    def check(self, options: Mapping[str, Any]) -> None:
        catalog.check_options(ADAPTER_ID, options, api=APIS)

    def facts(self, model: str, options: Mapping[str, Any]) -> ModelFacts:
        return catalog.facts(_vendor(openai_credentials()), model, options)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | Thinking | ModelReply | None, None]:
        credentials = openai_credentials()
        credentials.require()
        client, gate = await self._clients.get(credentials)
        from adapters.providers.openai.errors import translate

        try:
            async with gate:
                stream, reader = await _open(client, request, credentials)
            try:
                async for event in stream:
                    yield reader.take(event)
                yield reader.reply(allowances(stream.response.headers))
            except NONSENSE as error:
                raise ProviderError(
                    f"the server's stream does not read ({type(error).__name__})", ErrorClass.TRANSPORT
                ) from None
            finally:
                await stream.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, it leaves here as a ProviderError
            raise translate(error, credentials) from None

    async def close(self) -> None:
        await self._clients.close()


_MANIFEST: Final = Manifest(
    adapter_id=ADAPTER_ID,
    version=VERSION,
    vendor="openai",
    kind="api",
    models=catalog.OPENAI.models,
    capabilities=Capabilities(
        streaming=True, tools=True, resume=True, push=True, images=True, pdfs=True, replays_steps=True
    ),
)


def _api(options: Mapping[str, Any], credentials: Credentials) -> str:
    return str(options.get("api") or ("responses" if is_openai(credentials.base_url) else "chat"))


def _vendor(credentials: Credentials) -> catalog.Vendor:
    return catalog.OPENAI if is_openai(credentials.base_url) else catalog.COMPATIBLE


async def _open(
    client: "AsyncOpenAI", request: ModelRequest, credentials: Credentials
) -> "tuple[AsyncStream[Any], chat.Reader | responses.Reader]":
    vendor = _vendor(credentials)
    if _api(request.options, credentials) == "responses":
        events = await client.responses.create(**responses.parameters(request))
        return events, responses.Reader(request, vendor)
    given = chat.parameters(request, is_openai=is_openai(credentials.base_url))
    return await client.chat.completions.create(**given), chat.Reader(request, vendor)


def _client(credentials: Credentials) -> "AsyncOpenAI":
    import httpx2
    from openai import AsyncOpenAI, DefaultAioHttpClient

    timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    return AsyncOpenAI(
        api_key=credentials.key,
        base_url=credentials.base_url,
        max_retries=0,  # the fleet reschedules, and holds no slot meanwhile
        timeout=timeout,
        http_client=DefaultAioHttpClient(
            timeout=timeout, limits=httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        ),
    )
