"""`run_command`: a program, not a shell line, in the sandbox. Which programs is the group's policy; what they can do to
anybody else is the sandbox's business: nothing."""

from typing import Annotated

from pydantic import Field, StringConstraints

from adapters.errors import SandboxError, ToolError
from adapters.sandbox.port import Command, SandboxLimits
from adapters.sandbox.running import run
from adapters.tool_port import Tool, ToolArguments, ToolContext

Argument = Annotated[str, StringConstraints(max_length=100_000)]


class RunCommandArguments(ToolArguments):
    argv: list[Argument] = Field(
        min_length=1, max_length=500, description='the program and its arguments, for example ["grep", "-rn", "TODO"]'
    )
    folder: str = Field(".", max_length=4096, description="where to run it, within the workspace")
    stdin: str = Field("", max_length=1_000_000, description="what it reads")
    seconds: float = Field(60, gt=0, le=600, description="it is ended after so long")


async def _run_command(arguments: RunCommandArguments, context: ToolContext) -> str:
    allowed = context.policy.commands
    program = arguments.argv[0]
    if program not in allowed:
        raise ToolError(
            f"{program!r} is not among the programs you may run: {', '.join(allowed)}. Give the program and its "
            "arguments as a list; there is no shell"
        )
    if context.sandbox is None:
        raise ToolError("there is no sandbox here to run programs in")
    command = Command(
        argv=tuple(arguments.argv),
        workspace=context.workspace.root,
        folder=arguments.folder,
        env=context.beside.env,
        hosts=context.policy.hosts,
        readable=context.beside.readable,
        limits=SandboxLimits(seconds=arguments.seconds),
    )
    try:
        finished = await run(context.sandbox, command, arguments.stdin.encode())
    except SandboxError as error:
        raise ToolError(f"{program} could not be started: {error}") from None
    parts = [finished.words, finished.stdout]
    if finished.stderr:
        parts += ["[stderr]", finished.stderr]
    text = "\n".join(part for part in parts if part)
    if finished.ended != "exited":
        raise ToolError(text)
    return text


RUN_COMMAND = Tool(
    "run_command",
    "Runs a program in your workspace, in a sandbox: no network unless hosts were opened for you, nothing else of this "
    "machine. Takes the program and its arguments as a list, not a shell line.",
    RunCommandArguments,
    _run_command,
    needs_sandbox=True,
    offered=lambda policy: bool(policy.commands),
)
