"""The clerk's desk: what a foreman's workflow does to repositories. Each is one tool call of a stage, idempotent, and
ends with what it hands in. What may pass (a lock, a full disk, a server that is away) is a ToolError, and tried again;
what will not is handed in as a no, with the reason.

Nothing is merged unless the approvals that ask for it are on record as used, for the very commit: looked at here, at
the moment of the act, whatever was called before."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from adapters.actions import Submit
from adapters.errors import GitError, ProviderError, ToolError
from adapters.git.workbench import Workbench
from adapters.policy import Category, Policy
from adapters.risk.changes import Reason, reasons_to_ask
from adapters.sandbox.port import SandboxLimits
from adapters.tool_port import Concern, Tool, ToolArguments, ToolContext
from models.workflows import approved_commits, begin_act, end_act, find_stage
from workers.runtime import Runtime
from workers.workflows.assignment import Assignment, workbench_of
from workers.workflows.handing_over import hand_over

GB: Final = 1 << 30
# A project's whole test suite, with its compilers.
LIMITS: Final = SandboxLimits(seconds=1800.0, memory_bytes=4 * GB, processes=1024, file_bytes=2 * GB, disk_bytes=8 * GB)
DIFF_LIMIT: Final = 60_000  # characters that are kept of a change, and shown to its reviewer
LOOKED_THROUGH: Final = 4_000_000  # characters of a change that are looked at for keys
FILES_LIMIT: Final = 500
OVER: Final = "this stage of the workflow is over: nothing is done for it any more"


class Nothing(ToolArguments):
    """What to do is on the stage's row; nobody can say otherwise."""


class ApprovalArguments(ToolArguments):
    category: Category
    why: str
    repository: str
    branch: str
    commit: str
    files: list[str] = Field(default_factory=list)


class Desk:
    def __init__(self, runtime: Runtime, assignment: Assignment) -> None:
        self._runtime = runtime
        self._assignment = assignment
        self._spec = assignment.spec
        self._redacted = runtime.redactor.text

    @property
    def tools(self) -> dict[str, Tool[Any]]:
        made: list[Tool[Any]] = [
            self._tool("take_in", "Takes the repository in.", self._take_in),
            self._tool("check_work", "Commits what a builder has left, and runs the checks on it.", self._check_work),
            self._tool("merge_work", "Puts the work of all tasks together.", self._merge_work),
            self._tool("publish", "Hands the result over, if it was approved.", self._publish),
            Tool(
                "ask_approval",
                "Asks for a yes before a change is handed over.",
                ApprovalArguments,
                _approved,
                idempotent=True,
                risky=True,
                concern=_concern,
            ),
        ]
        return {tool.name: tool for tool in made}

    def _tool(
        self, name: str, description: str, work: Callable[[Workbench, ToolContext], Awaitable[Submit]]
    ) -> Tool[Nothing]:
        async def handler(arguments: Nothing, context: ToolContext) -> Submit:
            root = self._runtime.settings.workspace_root
            stage = await self._runtime.db.read(lambda conn: find_stage(conn, self._assignment.stage_id))
            if stage is None or stage.status != "running":
                raise ToolError(OVER)
            try:
                bench = workbench_of(root, self._assignment.workflow_id, context.sandbox)
                return await work(bench, context)
            except ProviderError as error:
                raise ToolError(str(error)) from None
            except GitError as error:
                said = self._redacted(str(error))
                if error.retryable:
                    raise ToolError(said) from None
                return Submit({"ok": False, "why": said}, said)

        return Tool(name, description, Nothing, handler, idempotent=True)

    async def _take_in(self, bench: Workbench, context: ToolContext) -> Submit:
        spec = self._spec
        taken = await bench.take_in(Path(spec.repository), spec.base)
        check = spec.check or await bench.check_command(taken.commit)
        if check is None:
            why = "nobody knows how this repository is tested: say so with --check, for example --check 'make test'"
            return Submit({"ok": False, "why": why}, why)
        output = {"ok": True, "commit": taken.commit, "branch": taken.branch, "subject": taken.subject, "check": check}
        return Submit(output, f"taken in at {taken.commit[:12]} ({taken.subject}); checked with: {check}")

    async def _check_work(self, bench: Workbench, context: ToolContext) -> Submit:
        call, task = self._assignment.call, self._assignment.task
        planned = self._assignment.planned
        assert planned is not None
        work = await bench.commit(task, f"{planned.title}\n\n{planned.goal}")
        if work.unresolved:
            why = f"conflict markers are left in {', '.join(work.unresolved[:20])}"
            return Submit({"ok": False, "why": why}, why)
        since, check = str(call["since"]), str(call["check"])
        change = await self._change(bench, since, work.commit)
        output = {"commit": work.commit, "tree": work.tree, "since": since, **change}
        if not change["files"]:
            why = "nothing was changed"
            return Submit({"ok": False, "why": why, **output}, why)
        checked = await bench.check(work.commit, check, LIMITS)
        why = "" if checked.ok else f"`{check}` failed: {checked.words}"
        log = self._redacted(checked.output)
        output |= {"ok": checked.ok, "why": why, "log": log, "seconds": round(checked.seconds, 1)}
        return Submit(output, why or f"`{check}` passed on {work.commit[:12]}")

    async def _merge_work(self, bench: Workbench, context: ToolContext) -> Submit:
        call = self._assignment.call
        onto, known = str(call["onto"]), set(call["checked"])
        at = onto
        for number, work in enumerate(call["work"], 1):
            is_last = number == len(call["work"])
            message = str(call["summary"]) if is_last else f"Merge {work['task']}"
            merged = await bench.merge(at, str(work["commit"]), message)
            if merged.conflicts:
                why = f"{work['task']} conflicts with what was done before it, in {', '.join(merged.conflicts[:20])}"
                return Submit(self._sent_back(work, at, why) | {"conflicts": list(merged.conflicts)}, why)
            if merged.tree not in known:
                checked = await bench.check(merged.commit, str(call["check"]), LIMITS)
                if not checked.ok:
                    why = f"with {work['task']}, the whole fails its checks: {checked.words}"
                    log = self._redacted(checked.output)
                    return Submit(self._sent_back(work, at, why) | {"log": log}, why)
            at = merged.commit
            await bench.keep(f"merge/{number}", at)
        change = await self._change(bench, onto, at)
        reasons = await self._reasons(bench, onto, at, context.policy)
        output = {"ok": True, "commit": at, "onto": onto, "reasons": [asdict(one) for one in reasons], **change}
        return Submit(output, f"put together at {at[:12]}: {len(change['files'])} files")

    @staticmethod
    def _sent_back(work: dict[str, Any], onto: str, why: str) -> dict[str, Any]:
        """To whoever built it, with what it does not go together with."""
        return {"ok": False, "task": work["task"], "onto": onto, "why": why}

    async def _change(self, bench: Workbench, since: str, commit: str) -> dict[str, Any]:
        files = await bench.changes(since, commit)
        diff = await bench.diff(since, commit, DIFF_LIMIT)
        return {"files": [asdict(one) for one in files[:FILES_LIMIT]], "diff": self._redacted(diff)}

    @staticmethod
    async def _reasons(bench: Workbench, since: str, commit: str, policy: Policy) -> list[Reason]:
        """By all of the change, and as it is: what is kept of it for people is cut, and has its secrets hidden."""
        diff = await bench.diff(since, commit, LOOKED_THROUGH)
        is_whole = len(diff) <= LOOKED_THROUGH
        return reasons_to_ask(await bench.changes(since, commit), diff, policy, is_whole=is_whole)

    async def _publish(self, bench: Workbench, context: ToolContext) -> Submit:
        merge = self._assignment.call["merge"]
        commit = str(merge["commit"])
        needed = {str(reason["category"]) for reason in merge["reasons"]} | {"merge"}
        yes = await self._runtime.db.read(lambda conn: approved_commits(conn, context.session_id))
        if missing := sorted(needed - yes.get(commit, set())):
            why = f"nobody has approved this ({', '.join(missing)}) for commit {commit[:12]}: nothing was merged"
            return Submit({"ok": False, "why": why}, why)
        ours = (self._assignment.workflow_id, self._assignment.stage_id)
        if not await self._runtime.db.transact(lambda conn: begin_act(conn, *ours)):
            raise ToolError(OVER)
        where = {"onto": str(merge["onto"]), "base_branch": self._assignment.call["base_branch"]}
        try:
            return await hand_over(bench, self._spec, commit, **where, summary=str(self._assignment.call["summary"]))
        except Exception:  # it is not being handed over any more, whatever went wrong
            await self._runtime.db.transact(lambda conn: end_act(conn, *ours))
            raise


async def _approved(arguments: ApprovalArguments, context: ToolContext) -> str:
    return f"approved: {arguments.category} for {arguments.commit[:12]}"


def _concern(arguments: ApprovalArguments) -> Concern:
    what = f"to merge {arguments.commit[:12]} into {arguments.branch} of {arguments.repository}"
    return Concern(arguments.category, what if arguments.category == "merge" else f"{what}, though {arguments.why}")
