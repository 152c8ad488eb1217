"""The port of a terminal that people can take over: what a query must offer whose program runs in one.

Who types is a matter of the control mode: `agent-led` (people watch), `human-led` (the agent's own input waits),
`delegated` (both may). Whoever changes it is on record (`ControlChanged`)."""

from typing import Protocol, runtime_checkable

from adapters.events import Mode, ScreenChanged


@runtime_checkable
class Terminal(Protocol):
    async def type(self, text: str, by: str) -> None:
        """Keys of a person, as bytes of a terminal. Raises TerminalError while the agent leads."""

    async def control(self, mode: Mode, by: str) -> None:
        """Who types from now on."""

    async def resize(self, rows: int, columns: int) -> None: ...

    def show(self) -> ScreenChanged:
        """The screen as it is, for somebody who has just come."""
