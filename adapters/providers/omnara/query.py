"""One turn of an Omnara agent: launched or gone on with, followed to its end, stopped there when it is stopped here.

A stream that breaks is taken up again where it was: asking anew would say everything to the agent a second time."""

import asyncio
import time
from contextlib import aclosing
from typing import Final

from adapters.contracts import QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Progress, SessionStarted
from adapters.providers.omnara import settings
from adapters.providers.omnara.api import OmnaraApi
from adapters.providers.omnara.timeline import Timeline
from adapters.providers.talking import TalkingQuery

RECONNECTS: Final = 3  # in a row, without anything new in between
RECONNECT_SECONDS: Final = 1.0
STOP_SECONDS: Final = 5.0


class OmnaraQuery(TalkingQuery):
    def __init__(self, given: QueryInput, stall_seconds: float) -> None:
        super().__init__(given)
        self._stall_seconds = stall_seconds
        self._agent: str | None = None
        self._api: OmnaraApi | None = None
        self._timeline: Timeline | None = None
        self._early: list[str] = []  # follow-ups that came before there was an agent
        self._door = asyncio.Lock()  # what was sent is expected before the agent can be seen to take it up

    async def push(self, text: str) -> bool:
        async with self._door:
            if self.status not in ("starting", "running"):
                return False
            if self._timeline is None:
                self._early.append(text)
                return True
            try:
                await self._send(text)
            except ProviderError:
                return False  # it is asked in a turn of its own
            return True

    async def converse(self) -> None:
        try:
            await self._converse()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Whatever ended it, the agent does not go on unseen."""
        if self._api is None:
            return
        try:
            if self._agent is not None and self.status != "ended":
                async with asyncio.timeout(STOP_SECONDS):
                    await self._api.cancel(self._agent)
        except (ProviderError, TimeoutError):
            pass  # it cannot be reached, which is most likely why this ended
        finally:
            await self._api.close()

    async def _converse(self) -> None:
        place = settings.place(self.given.options)
        self._api = api = OmnaraApi(settings.credentials(), place, self._stall_seconds)
        agent, timeline = await self._begin(api)
        await self.say(SessionStarted(continuation=agent))
        async with self._door:
            self._timeline = timeline
            for text in self._early:
                await self._send(text)
        failures = 0
        while True:
            before = timeline.after
            try:
                return await self._follow(api, agent, timeline)
            except ProviderError as error:
                failures = 1 if timeline.after > before else failures + 1
                if error.error_class not in (ErrorClass.TRANSPORT, ErrorClass.PROVIDER_HANG) or failures > RECONNECTS:
                    raise
                await asyncio.sleep(RECONNECT_SECONDS * (failures - 1))

    async def _begin(self, api: OmnaraApi) -> tuple[str, Timeline]:
        text, earlier = _text_of(self.given), self.given.continuation
        # An agent that is not there any more is succeeded by a new one.
        if settings.is_id(earlier, "agt_") and (after := await api.newest(str(earlier))) is not None:
            self._agent = str(earlier)
            timeline = Timeline(settings.credentials(), after=after)
            timeline.expected.add(await api.send(self._agent, text))
        else:
            self._agent, first, model = await api.launch(text)
            timeline = Timeline(settings.credentials(), model)
            timeline.expected.add(first)
        return self._agent, timeline

    async def _follow(self, api: OmnaraApi, agent: str, timeline: Timeline) -> None:
        """Until the turn has ended; a broken connection is an error."""
        told = time.monotonic()
        async with aclosing(api.follow(agent, timeline.after)) as frames:
            async for frame in frames:
                async with self._door:
                    events = list(timeline.take(frame)) if frame is not None else []
                    if timeline.answered and not timeline.expected:
                        self.status = "ended"
                for event in events:
                    await self.say(event)
                if self.status == "ended":
                    return
                # Hints of what it waits for may be lost; a heartbeat is a good moment to look again.
                if timeline.open_calls and (frame is None or "state" in frame):
                    open_questions = await api.interactions(agent)
                    for event in timeline.waiting(open_questions):
                        await self.say(event)
                    # People take their time. The fleet must not take that for a provider that hangs.
                    if open_questions and time.monotonic() - told > self.given.limits.seconds_silent / 2:
                        await self.say(Progress(text="omnara's agent waits for somebody's answer"))
                        told = time.monotonic()

    async def _send(self, text: str) -> None:
        assert self._api is not None
        assert self._agent is not None
        assert self._timeline is not None
        self._timeline.expected.add(await self._api.send(self._agent, text, steering=True))


def _text_of(given: QueryInput) -> str:
    if isinstance(given.prompt, str):
        return given.prompt
    return "\n\n".join(block.text for block in given.prompt if block.type == "text")
