"""`make clis` from a cache that has everything: nothing is downloaded, and what is there says how it is run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RECIPES = Path(__file__).parents[2] / "deploy" / "clis"
CLAUDE = json.loads((RECIPES / "claude" / "package.json").read_text())
VERSION = CLAUDE["dependencies"]["@anthropic-ai/claude-code"]


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A cache with a claude of two lines for whatever platform this is."""
    folder = tmp_path / "cache" / "longshore" / "clis" / f"claude-{VERSION}"
    for name in ("linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"):
        program = folder / "node_modules" / "@anthropic-ai" / f"claude-code-{name}" / "claude"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho works\n")
        program.chmod(0o755)
    return folder


def install(tmp_path: Path, *names: str, required: str | None = None) -> subprocess.CompletedProcess[str]:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    # There is no way out: a download would fail at once.
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1", "PATH": os.defpath}
    if required is not None:
        environment["LONGSHORE_REQUIRE_CLIS"] = required
    argv = [sys.executable, str(RECIPES / "install.py"), *names]
    return subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, check=False)


def described(tmp_path: Path) -> dict[str, Any]:
    return dict(json.loads((tmp_path / "project" / ".clis" / "claude.json").read_text()))


def test_a_program_comes_from_the_cache_as_the_same_file_and_runs(tmp_path: Path, cached: Path) -> None:
    done = install(tmp_path, "claude")
    assert (done.returncode, done.stderr) == (0, "")
    known = described(tmp_path)
    assert (known["name"], known["version"], known["readable"]) == ("claude", VERSION, ["claude"])
    (argument,) = known["argv"]
    program = tmp_path / "project" / ".clis" / argument
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"works\n"
    assert program.samefile(cached / program.relative_to(tmp_path / "project" / ".clis" / "claude"))


def test_a_second_run_leaves_everything_as_it_is(tmp_path: Path, cached: Path) -> None:
    install(tmp_path, "claude")
    described = tmp_path / "project" / ".clis" / "claude.json"
    before = described.stat()
    assert install(tmp_path, "claude").stdout == f"claude {VERSION} ... is there\n"
    after = described.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_an_ended_run_or_an_older_version_left_is_replaced(tmp_path: Path, cached: Path) -> None:
    folder = tmp_path / "project" / ".clis"
    for left in ("claude/old", "claude.part/half"):
        (folder / left).mkdir(parents=True)
    (folder / "claude.json").write_text(json.dumps({"version": "0.1", "argv": ["claude/old"]}))
    assert install(tmp_path, "claude").returncode == 0
    assert described(tmp_path)["version"] == VERSION
    assert not (folder / "claude" / "old").exists()
    assert not (folder / "claude.part").exists()


def test_what_cannot_be_installed_is_told_and_the_others_go_on(tmp_path: Path, cached: Path) -> None:
    done = install(tmp_path, "codex", "claude")
    assert done.returncode == 1
    assert "codex" in done.stdout
    assert "not installed: pip ended with 1: ERROR:" in done.stdout
    assert described(tmp_path)["name"] == "claude"
    assert not (tmp_path / "project" / ".clis" / "codex.json").exists()
    assert not list(cached.parent.glob("*.part"))


@pytest.mark.parametrize(("required", "code"), [(" claude,", 0), ("claude, codex", 1), ("", 1)])
def test_it_fails_only_for_those_that_must_be_there_if_somebody_says_which(
    required: str | None, code: int, tmp_path: Path, cached: Path
) -> None:
    done = install(tmp_path, "codex", "claude", required=required)
    assert done.returncode == code
    assert done.stdout.endswith("\nNOT INSTALLED: codex\n")
    assert described(tmp_path)["name"] == "claude"


def test_a_name_that_is_none_is_told_also_among_those_that_must_be_there(tmp_path: Path, cached: Path) -> None:
    done = install(tmp_path, "claude", required="cluade")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        2,
        "Not a CLI agent: cluade. There are: claude, codex, gemini, openclaw, opencode.",
    )


def test_a_name_that_is_none_is_told(tmp_path: Path) -> None:
    done = install(tmp_path, "cluade")
    assert done.returncode == 2
    assert done.stdout == "Not a CLI agent: cluade. There are: claude, codex, gemini, openclaw, opencode.\n"


def test_locks_pin_contents_and_name_no_registry() -> None:
    locks = sorted(RECIPES.glob("*/package-lock.json"))
    assert [path.parent.name for path in locks] == ["claude", "codex", "gemini", "openclaw"]
    for path in (*locks, RECIPES.parent / "browser" / "chromium" / "package-lock.json"):
        packages = [facts for name, facts in json.loads(path.read_text())["packages"].items() if name]
        assert all("integrity" in facts or facts.get("inBundle") for facts in packages)
        assert not any("resolved" in facts for facts in packages)
