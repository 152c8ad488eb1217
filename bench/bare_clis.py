"""The CLI agents started by hand, as their own manuals say: no sandbox, no tools of ours, the key in the environment.

The peers of `clis`. Each gets an empty home and environment, a user without rights, and the stand-in's address."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.providers.cli.installation import Installation
from adapters.sandbox.bubblewrap import NOBODY
from bench.process_tree import Watch

PROMPT, ANSWER = "answer", "Good morning to you"
KEY = "fake"
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Start:
    """`files` are put into the home first (path below it: content)."""

    arguments: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cli:
    """`start` takes the stand-in's address, the home and the workspace. `first_event` says why the two sides' first
    events are not alike, if they are not."""

    name: str
    adapter_id: str
    model: str
    start: Callable[[str, Path, Path], Start]
    first_event: str = ""


@dataclass(frozen=True)
class Run:
    """Seconds from the start to the first event, the answer and the end; and the most memory of all its processes."""

    first: float
    answer: float
    end: float
    memory_mb: float


async def run_bare(
    cli: Cli, installation: Installation, url: str, home: Path, workspace: Path, besides: frozenset[int]
) -> Run:
    start = cli.start(url, home, workspace)
    for name, content in start.files.items():
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    give(home)
    env = {"HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "PATH": os.defpath, **start.env}
    first = answer = 0.0
    with Watch(os.getpid(), besides) as watch:
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *installation.argv, *start.arguments, env=env, cwd=workspace, start_new_session=True, limit=1 << 24,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            **_user(),
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for line in process.stdout:
                    first = first or time.perf_counter() - started
                    if not answer and ANSWER.encode() in line:
                        answer = time.perf_counter() - started
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        end = time.perf_counter() - started
    if code != 0 or not answer:
        raise RuntimeError(f"bare {cli.name} ended with exit code {code} and {'an' if answer else 'no'} answer")
    return Run(first, answer, end, watch.below_mb)


def give(folder: Path) -> None:
    """To the user that the programs run as."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)


def _user() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


# --- How each is started -----------------------------------------------------------------------------------------


def _claude(url: str, home: Path, workspace: Path) -> Start:
    off = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY")
    return Start(
        ("-p", PROMPT, "--output-format", "stream-json", "--verbose", "--model", CLAUDE.model),
        {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            **dict.fromkeys(off, "1"),
            "DISABLE_ERROR_REPORTING": "1",
        },
    )


def _codex(url: str, home: Path, workspace: Path) -> Start:
    provider = f'{{name="bare",base_url="{url}/v1",env_key="BARE_KEY",wire_api="responses"}}'
    settings = ("model_provider=bare", f"model_providers.bare={provider}", f"model={CODEX.model}")
    return Start(
        (
            *(word for setting in (*settings, "analytics.enabled=false") for word in ("-c", setting)),
            *("--disable", "plugins", "exec", "--json", "-s", "read-only", "--skip-git-repo-check", PROMPT),
        ),
        {"CODEX_HOME": str(home), "BARE_KEY": KEY},
    )


def _gemini(url: str, home: Path, workspace: Path) -> Start:
    trust = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    return Start(
        ("-p", PROMPT, "-o", "stream-json", "-m", GEMINI.model),
        {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url, **trust},
        {".gemini/settings.json": settings},
    )


def _opencode(url: str, home: Path, workspace: Path) -> Start:
    model = {"name": "bare", "tool_call": True, "limit": {"context": 128_000, "output": 8_192}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "bare",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {OPENCODE.model: model},
    }
    chosen = f"bare/{OPENCODE.model}"
    settings = {
        "autoupdate": False, "share": "disabled", "enabled_providers": ["bare"], "provider": {"bare": provider},
        "model": chosen, "small_model": chosen,
    }  # fmt: skip
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return Start(
        ("run", "--format", "json", PROMPT),
        {"OPENCODE_CONFIG_CONTENT": json.dumps(settings), **{f"OPENCODE_DISABLE_{name}": "1" for name in off}},
    )


def _openclaw(url: str, home: Path, workspace: Path) -> Start:
    model = {
        "id": OPENCLAW.model, "name": "bare", "reasoning": False, "input": ["text"],
        "contextWindow": 128_000, "maxTokens": 8_192,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }  # fmt: skip
    provider = {"baseUrl": f"{url}/v1", "apiKey": KEY, "api": "openai-responses", "models": [model]}
    settings = {
        "models": {"mode": "replace", "providers": {"bare": provider}},
        "agents": {"defaults": {"model": {"primary": f"bare/{OPENCLAW.model}"}, "workspace": str(workspace)}},
        "update": {"checkOnStart": False},
    }
    off = ("OPENCLAW_TELEMETRY_DISABLED", "OPENCLAW_NO_UPDATE_CHECK", "DO_NOT_TRACK")
    return Start(
        ("agent", "exec", "--config", str(home / "openclaw.json"), "--cwd", str(workspace), "--json", PROMPT),
        dict.fromkeys(off, "1"),
        {"openclaw.json": settings},
    )


# A model that codex does not know gets plain tools, and not a language of its own to call them in.
CLAUDE = Cli("claude", "claude-code", "claude-sonnet-5-5", _claude)
CODEX = Cli("codex", "codex", "a-model-it-does-not-know", _codex)
GEMINI = Cli("gemini", "gemini", "gemini-2.5-flash", _gemini)
OPENCODE = Cli("opencode", "opencode", "gpt-5", _opencode)
OPENCLAW = Cli("openclaw", "openclaw", "gpt-5", _openclaw, "ours: before its program starts; peer: its whole answer")
CLIS = (CLAUDE, CODEX, GEMINI, OPENCODE, OPENCLAW)
