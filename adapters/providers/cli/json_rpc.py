"""JSON-RPC over a program's pipes, both ways: for programs that are asked, and ask back (codex, ACP agents)."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.cli.program import Program

# What the program asks of us: method and parameters lead to a result, or RpcError to be told.
Answer = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Hear = Callable[[str, Mapping[str, Any]], Awaitable[None]]

METHOD_NOT_FOUND = -32601


class RpcError(Exception):
    """One side could not do what the other asked."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data


class JsonRpc:
    """`lead` talks and listens until the program's output ends; `call` may be used meanwhile. Requests of the program
    are answered in tasks of their own: one that waits for a person holds nothing else up. Notifications are heard in
    order."""

    def __init__(self, program: Program, answer: Answer, hear: Hear, *, version: bool = True) -> None:
        self._program = program
        self._answer = answer
        self._hear = hear
        self._head: dict[str, Any] = {"jsonrpc": "2.0"} if version else {}
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._over = False

    async def run(self) -> None:
        try:
            async for message in self._program.messages():
                await self._take(message)
        finally:
            for task in self._answering:
                task.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)
            self._over = True
            self._fail(ProviderError("the program ended before it answered", ErrorClass.INTERNAL))

    async def lead(self, talk: Coroutine[Any, Any, None]) -> None:
        """Listen while `talk` talks, until one of both is over."""
        program = self._program
        listening, talking = asyncio.create_task(self.run()), asyncio.create_task(talk)
        try:
            await asyncio.wait({listening, talking}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                # What broke it is nearer to the truth than that nobody answers any more.
                listening.result()
                if not talking.done() or talking.exception() is not None:
                    raise program.broke(await program.ended())
            talking.result()
        finally:
            for task in (talking, listening):
                task.cancel()
            await asyncio.gather(talking, listening, return_exceptions=True)

    async def call(self, method: str, **parameters: Any) -> Any:
        """Its result. Raises RpcError if the program says no, ProviderError if it ends instead."""
        if self._over:
            raise ProviderError("the program has ended", ErrorClass.INTERNAL)
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            if not await self._program.write({**self._head, "id": number, "method": method, "params": parameters}):
                raise ProviderError("the program does not listen any more", ErrorClass.INTERNAL)
            return await future
        finally:
            del self._waiting[number]

    async def notify(self, method: str, **parameters: Any) -> None:
        await self._program.write({**self._head, "method": method, "params": parameters})

    def _fail(self, error: Exception) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waited may have gone

    async def _take(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        parameters = message.get("params") or {}
        if isinstance(method, str) and isinstance(parameters, dict):
            if number is None:
                await self._hear(method, parameters)
            else:
                task = asyncio.create_task(self._reply(number, method, parameters))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            return
        future = self._waiting.get(number) if isinstance(number, int) else None
        if future is None or future.done():
            return  # an answer nobody waits for
        if isinstance(error := message.get("error"), dict):
            code = error.get("code")
            future.set_exception(
                RpcError(
                    code if isinstance(code, int) else 0,
                    str(error.get("message", "no reason given")),
                    error.get("data"),
                )
            )
        else:
            future.set_result(message.get("result"))

    async def _reply(self, number: Any, method: str, parameters: Mapping[str, Any]) -> None:
        try:
            said: dict[str, Any] = {"result": await self._answer(method, parameters)}
        except RpcError as error:
            said = {"error": {"code": error.code, "message": error.message}}
        except Exception as error:  # noqa: BLE001 - for whoever waits for the program: nobody waits for this task
            self._fail(error)
            return
        await self._program.write({**self._head, "id": number, **said})
