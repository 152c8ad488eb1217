"""The vendors' own SDKs, talking to the stand-in for their servers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from tests.support.model_api import ModelApi


@asynccontextmanager
async def anthropic_client(api: ModelApi, **options: Any) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=api.url, api_key="fake", max_retries=0, **options) as client:
        yield client


@asynccontextmanager
async def openai_client(api: ModelApi, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=api.openai_url, api_key="fake", max_retries=0, **options) as client:
        yield client


async def ask_claude(api: ModelApi, messages: Any, **options: Any) -> Any:
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    async with anthropic_client(api) as client:
        asked = {"model": "claude-haiku-5-5", "max_tokens": 100, "messages": given, **options}
        async with client.messages.stream(**asked) as stream:
            return await stream.get_final_message()


async def ask_responses(api: ModelApi, given: Any, **options: Any) -> Any:
    asked = {"model": "gpt-6-luna", "input": given, "store": False, **options}
    async with openai_client(api) as client, client.responses.stream(**asked) as stream:
        return await stream.get_final_response()


async def ask_chat(api: ModelApi, messages: Any, **options: Any) -> Any:
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    async with openai_client(api) as client:
        usage = {"include_usage": True}
        asked = {"model": "gpt-6-luna", "messages": given, "stream_options": usage, **options}
        async with client.chat.completions.stream(**asked) as stream:
            return await stream.get_final_completion()


async def said_by_claude(api: ModelApi, text: str) -> str:
    message = await ask_claude(api, text)
    return "".join(block.text for block in message.content if block.type == "text")


async def said_by_responses(api: ModelApi, text: str) -> str:
    return str((await ask_responses(api, text)).output_text)


async def said_by_chat(api: ModelApi, text: str) -> str:
    return str((await ask_chat(api, text)).choices[0].message.content)


SPEAKERS = [said_by_claude, said_by_responses, said_by_chat]
Speaker = Callable[[ModelApi, str], Any]
every_wire = pytest.mark.parametrize("ask", SPEAKERS)
