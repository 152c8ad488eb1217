"""`openai`: one streamed model call."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from adapters.contracts import Capabilities, Detection, Manifest
from adapters.errors import ErrorClass, ProviderError
from adapters.events import TextDelta, Thinking
from adapters.model_port import ModelFacts, ModelReply, ModelRequest


class OpenAIProvider:
    manifest = Manifest(
        adapter_id="openai",
        version="1",
        vendor="openai",
        kind="api",
        models=("gpt-6.1-terra",),
        capabilities=Capabilities(
            streaming=True, tools=True, resume=True, push=True, images=True, pdfs=True, replays_steps=True
        ),
    )
    default_model = "gpt-6.1-terra"
    account = ""

    async def detect(self) -> Detection:
        return Detection(installed=True)

    def check(self, options: Mapping[str, Any]) -> None: ...

    def facts(self, model: str, options: Mapping[str, Any]) -> ModelFacts:
        return ModelFacts(context_tokens=200_000)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Thinking | ModelReply | None]:
        raise ProviderError("not written yet", ErrorClass.INVALID_REQUEST)
        yield None

    async def close(self) -> None: ...
