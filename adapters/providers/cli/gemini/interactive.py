"""The Gemini CLI as people use it: in a terminal that they can watch and take over (option `interactive`).

It asks on its screen, where whatever is typed next could be taken for a yes. So it has no tool that would ask: no
shell and no web of its own. Who takes over has the sandbox's shell by `!`, like at any terminal. It works in the
workspace itself, and does not start where there are settings that must not be obeyed."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any, Final

from adapters.contracts import ContentBlock, QueryInput
from adapters.errors import ProviderError, WorkspaceError
from adapters.providers.cli.acp.driver import AcpDriver, Doors, opened_doors
from adapters.providers.cli.gemini import oneshot, sessions
from adapters.providers.cli.gemini.settings import POLICIES, PROGRAM, TRIED, environment, files, has_settings
from adapters.providers.cli.installation import inspected, note_on
from adapters.providers.cli.key_proxy import Pass
from adapters.providers.cli.options import check_known, refusal
from adapters.providers.cli.program import command_of, lay_out, station_of
from adapters.providers.cli.query import with_trouble
from adapters.providers.cli.terminal.options import Options
from adapters.providers.cli.terminal.provider import TERM, TerminalQuery

SIZE: Final = ("rows", "columns", "idle_seconds")
DENIED: Final = """[[rule]]
toolName = ["run_shell_command", "web_fetch"]
decision = "deny"
priority = 999
"""


def read_options(options: Mapping[str, Any]) -> Options | None:
    """None: not interactive."""
    check_known(PROGRAM, options, "price", "interactive", *SIZE)
    interactive = options.get("interactive", False)
    if not isinstance(interactive, bool):
        raise refusal(f"interactive: {interactive!r} is neither true nor false")
    sized = {name: options[name] for name in SIZE if name in options}
    if sized and not interactive:
        raise refusal(f"{', '.join(sized)}: only of use with interactive: true")
    return Options.read(sized) if interactive else None


class GeminiTerminal(TerminalQuery):
    def __init__(self, given: QueryInput, driver: AcpDriver, options: Options) -> None:
        super().__init__(given, options)
        self._driver = driver
        self._admitted: Pass
        self._told: set[str] = set()  # what has been told of what it said, and what was said long ago

    async def push(self, text: str) -> bool:
        return await super().push(self._driver.worded(text))

    async def converse(self) -> None:
        given, home = self.given, station_of(self.given).home
        inspection = await inspected(PROGRAM)
        if not given.policy.obey_repository and await asyncio.to_thread(has_settings, given):
            raise refusal(
                f"an interactive gemini would obey the workspace's {sessions.FOLDER}: "
                "let it (obey_repository), or leave out the option interactive"
            )
        begin = "--resume" if await asyncio.to_thread(sessions.make_ready, home, given.continuation) else "--session-id"
        self._told |= (await self._all_it_said()).keys()
        async with opened_doors(given, self._driver) as (doors, opened, meter):
            assert meter is not None
            self._admitted = meter.admitted
            session = given.continuation or str(uuid.uuid4())
            await lay_out(given, settings(given, doors))
            argv = (*inspection.installation.argv, *self._arguments(doors.workspace), begin, session)
            env = environment(doors) | {"TERM": TERM, "COLORTERM": "truecolor"}
            try:
                command = command_of(given, argv, inspection.installation.readable, env=env, doors=opened)
                await self.run(command, session, inspection.version, note_on(inspection, TRIED), told=True)
            except ProviderError as error:
                raise with_trouble(error, self._admitted) from None
            finally:
                for report in self._driver.usage(given, meter):
                    await self.say(report)

    def is_at_work(self) -> bool:
        """It waits for its model, or has not come so far."""
        return self._admitted.under_way > 0 or not (self._admitted.answers or self._admitted.trouble)

    async def read_answer(self) -> str:
        """The last it has said, in its own words rather than as it has drawn them."""
        if self._admitted.trouble is not None:
            raise self._admitted.trouble
        said = await self._all_it_said()
        new = [text for number, text in said.items() if number not in self._told]
        self._told |= said.keys()
        return new[-1] if new else await super().read_answer()

    async def _all_it_said(self) -> dict[str, str]:
        try:
            return await asyncio.to_thread(sessions.said, station_of(self.given).home)
        except WorkspaceError:
            return {}

    def _arguments(self, workspace: str) -> tuple[str, ...]:
        given = self.given
        blocks = (ContentBlock("text", given.prompt),) if isinstance(given.prompt, str) else given.prompt
        prompt = "\n\n".join(block.text or f"[attached: {workspace}/{block.path}]" for block in blocks)
        return (
            *("--model", self._driver.model(given), "--approval-mode", "auto_edit"),
            f"--prompt-interactive={oneshot.fitting(self._driver.worded(prompt))}",
        )


def settings(given: QueryInput, doors: Doors) -> dict[str, str]:
    more = {"ui": {"hideBanner": True, "hideTips": True}} | oneshot.tools(doors)
    denied = {POLICIES: DENIED}
    return files(given, more) | sessions.registry(doors.workspace) | denied
