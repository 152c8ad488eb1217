"""`gemini`: Google's Gemini CLI, led over ACP (`gemini --acp`).

It must trust its folder or it would not offer our tools, and a trusted folder's settings are obeyed. So it is started
outside the workspace, and reads none of them unless the group's policy says so."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from adapters.contracts import Capabilities, Detection, Manifest, Query, QueryInput
from adapters.events import Progress, Result, TextDelta
from adapters.providers import catalog
from adapters.providers.cli.acp.driver import AcpDriver, Doors, Launch, Meter
from adapters.providers.cli.acp.query import AcpQuery
from adapters.providers.cli.gemini import oneshot as gemini_oneshot
from adapters.providers.cli.gemini import sessions as gemini_sessions
from adapters.providers.cli.gemini.interactive import GeminiTerminal, read_options
from adapters.providers.cli.gemini.settings import ASKED, POLICIES, PROGRAM, TRIED, environment, files, has_settings
from adapters.providers.cli.installation import Inspection, detection, inspected, note_on
from adapters.providers.cli.key_proxy import KeyProxy
from adapters.providers.cli.options import refusal
from adapters.providers.cli.program import Program, station_of
from adapters.providers.cli.usage_seen import Wire
from adapters.providers.credentials import gemini_credentials
from adapters.sandbox.port import Door
from adapters.station import Needs

ACP: Final = ("--acp", "--experimental-acp")
GOOGLE: Final = catalog.Vendor(
    default="gemini-3.8-flash",
    models=("gemini-3.1-pro-preview", "gemini-3.8-flash", "gemini-3.5-flash-lite", "gemini-2.5-pro"),
    context_tokens=1_000_000,
    priced_as="google",
)


class GeminiProvider(AcpDriver):
    manifest = Manifest(
        adapter_id="gemini",
        version="1",
        vendor="google",
        kind="cli",
        models=GOOGLE.models,
        capabilities=Capabilities(
            streaming=True, tools=True, resume=True, push=True, images=True, mcp=True, approvals=True,
            structured_edits="file_events",
        ),
    )  # fmt: skip
    needs = Needs(state=(gemini_sessions.STATE,), memory_bytes=300 << 20, program=PROGRAM)

    async def detect(self) -> Detection:
        return await detection(PROGRAM, TRIED)

    def check(self, options: Mapping[str, Any]) -> None:
        read_options(options)

    def proxy(self, options: Mapping[str, Any]) -> tuple[Wire, KeyProxy]:
        """In a terminal it would ask a model that refuses again and again, many times a second."""
        final = read_options(options) is not None
        name = "gemini, final" if final else "gemini"
        return "gemini", self._proxies.setdefault(name, KeyProxy("gemini", gemini_credentials, final=final))

    def model(self, given: QueryInput) -> str:
        return given.model or GOOGLE.default

    def vendor(self, given: QueryInput) -> catalog.Vendor:
        return GOOGLE

    def worded(self, text: str) -> str:
        """What begins like a command of its own would be obeyed, not read, or forgotten when it goes on."""
        return f"Message: {text}" if text.lstrip().startswith(("/", "$", "?", "!", "<session_context>")) else text

    def tool_name(self, call_id: str, title: str, kind: str) -> str:
        """It puts the tool's name before each call's id."""
        from adapters.providers.cli.acp.events import own_name

        name, found, _ = call_id.partition("__")
        return own_name(name) if found else super().tool_name(call_id, title, kind)

    def query(self, given: QueryInput) -> Query:
        terminal = read_options(given.options)
        return GeminiQuery(given, self) if terminal is None else GeminiTerminal(given, self, terminal)

    async def launch(self, given: QueryInput, doors: Doors) -> Launch:
        inspection = await inspected(PROGRAM)
        home = station_of(given).home
        await asyncio.to_thread(gemini_sessions.make_ready, home, given.continuation)
        obeys = given.policy.obey_repository
        seed, laid_out = "", dict[str, str]()
        if not obeys and await asyncio.to_thread(has_settings, given):
            # For a new conversation it would look for settings in the workspace, for an old one it does not.
            seed, laid_out = gemini_sessions.seed()
        return Launch(
            installation=inspection.installation,
            version=inspection.version,
            arguments=(next((flag for flag in ACP if inspection.offers(flag)), ACP[0]), "-m", self.model(given)),
            env=environment(doors),
            files=files(given) | {POLICIES: ASKED} | gemini_sessions.registry(doors.workspace) | laid_out,
            notes=(note_on(inspection, TRIED),),
            outside=not obeys,
            choose=self.model(given),
            seed=seed,
        )


class GeminiQuery(AcpQuery):
    async def _attempt(self, doors: Doors, opened: list[Door], meter: Meter | None) -> None:
        inspection = await inspected(PROGRAM)
        if not inspection.help or any(inspection.offers(flag) for flag in ACP):
            await super()._attempt(doors, opened, meter)
        else:
            await self._one_shot(inspection, doors, opened, meter)

    async def _one_shot(self, inspection: Inspection, doors: Doors, opened: list[Door], meter: Meter | None) -> None:
        self._open = False
        given = self.given
        if not given.policy.obey_repository and await asyncio.to_thread(has_settings, given):
            raise refusal(
                f"gemini {inspection.version} has no --acp, and without it would obey the workspace's "
                f"{gemini_sessions.FOLDER}: install {TRIED[1]} (`make clis`), or let it (obey_repository)"
            )
        await asyncio.to_thread(gemini_sessions.make_ready, station_of(given).home, given.continuation)
        prompt = "\n\n".join(block["text"] for block in await self._prompt("") if "text" in block)
        async with self.start(
            inspection.installation,
            gemini_oneshot.arguments(inspection, prompt, self._driver.model(given), given.continuation),
            env=environment(doors),
            doors=opened,
            files=files(given, gemini_oneshot.tools(doors)) | gemini_sessions.registry(doors.workspace),
        ) as program:
            program.close_input()
            try:
                if gemini_oneshot.streams(inspection):
                    await self._read_stream(program, inspection, doors)
                else:
                    await self._read_text(program, inspection)
            finally:
                await self._report(meter, catalog.Tokens())

    async def _read_stream(self, program: Program, inspection: Inspection, doors: Doors) -> None:
        stream = gemini_oneshot.Stream(doors.workspace)
        async for message in program.messages():
            events = list(stream.take(message))
            if stream.session:
                await self._has_begun(stream.session, inspection)
            await self._say_all(events)
        code = await program.ended()
        if not stream.ended:
            raise program.broke(code)

    async def _read_text(self, program: Program, inspection: Inspection) -> None:
        await self._has_begun("", inspection)
        text = "\n".join([line async for line in program.lines()]).strip()
        code = await program.ended()
        if code != 0 or not text:
            raise program.broke(code)
        await self._say_all([TextDelta(text=text), Result(text=text)])

    async def _has_begun(self, session: str, inspection: Inspection) -> None:
        if not self._session:
            self._session = session or "without a memory"
            await self.begin(session, inspection.version)
            for note in filter(None, (note_on(inspection, TRIED), gemini_oneshot.NOTE)):
                await self.say(Progress(text=note))
