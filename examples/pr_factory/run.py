"""PR Factory: a worker for each pull request, a manager who knows them all, a supervisor who makes them better.

`python examples/pr_factory/run.py` plays a day of it: a real fleet on this machine, agents that follow scripts instead
of asking a model, and stand-ins for GitHub and Discord. No key, nothing leaves 127.0.0.1, nothing is left behind.
`--keep FOLDER` leaves the fleet's folder there, to be looked at. docs/pr-factory.md walks through it."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VENV = ROOT / ".venv"
if VENV.exists() and Path(sys.prefix) != VENV:  # started with another Python
    os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv])
sys.path[:0] = [str(HERE), str(ROOT)]

try:
    from fleet import Fleet
    from platforms import ADA, ADA_ON_GITHUB, FACTORY, OFFICE, REPOSITORY, Platforms
except ImportError as error:
    sys.exit(f"{error}. Longshore is not installed here: `make up` installs it (Ctrl-C stops it), then try again")

PULLS = {1: ("Count the tides in UTC", "bob"), 2: ("Faster search", "carol"), 3: ("Fix a typo in the README", "dan")}
WIDTH = 110
AS_IT_IS: Any = {"drop_whitespace": False, "replace_whitespace": False, "expand_tabs": False}
FEEDBACK = "@supervisor this review does not say whether the change is tested"


def main() -> None:
    options = argparse.ArgumentParser(description="Plays a day of the PR Factory.")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the fleet's folder there; it must be new")
    keep = options.parse_args().keep
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with folder_for(keep) as folder:
        platforms = Platforms()
        fleet = Fleet(folder, **platforms.settings)
        try:
            play(fleet, platforms)
        finally:
            fleet.stop()
            platforms.close()
        if problems := platforms.github.problems + platforms.discord.problems:
            sys.exit(f"a platform complained: {problems}")
    tell("The end", "the fleet is stopped" + (f"; its folder is {keep}" if keep else ", and nothing is left of it"))


@contextmanager
def folder_for(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="pr-factory-"))
    folder.chmod(0o711)  # the sandbox's user comes through
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def play(fleet: Fleet, platforms: Platforms) -> None:
    tell("A fleet starts", "real processes: broker, worker, delivery, beat, gateway")
    fleet.start()
    platforms.door = fleet.door
    set_up(fleet)
    arrive(fleet, platforms)
    give_feedback(fleet, platforms)
    ask_the_manager(fleet, platforms)
    change_the_skill(fleet, platforms)
    review_again(fleet, platforms)


def set_up(fleet: Fleet) -> None:
    tell("Three agents", "pr-worker in every pull request; pr-supervisor where it is called; pr-manager on Discord")
    for name in ("pr-worker", "pr-supervisor", "pr-manager"):
        fleet.add_agent(name, HERE / "agents" / name)
    github = ("github", REPOSITORY, "--per-thread")
    fleet.longshore("wire", "pr-worker", *github, "--unknown", "public")
    called = ("--pattern", "@supervisor", "--priority", "5", "--include-sender", str(ADA_ON_GITHUB))
    fleet.longshore("wire", "pr-supervisor", *github, *called)
    fleet.longshore("wire", "pr-supervisor", "discord", OFFICE)
    fleet.longshore("wire", "pr-manager", "discord", FACTORY)
    fleet.longshore("people", "add", f"discord:{ADA}", "--role", "admin", "--agent", "pr-worker")
    for agent in ("pr-supervisor", "pr-manager"):
        fleet.longshore("people", "add", f"discord:{ADA}", "--agent", agent)


def arrive(fleet: Fleet, platforms: Platforms) -> None:
    tell("Pull requests arrive", "each is a thread, and each thread a session of the worker")
    for number, (title, author) in PULLS.items():
        platforms.open_pull_request(number, title, author)
    for number, (title, author) in PULLS.items():
        review = fleet.wait_for(lambda n=number: platforms.answers_below(n), f"a review of #{number}")[0]
        quote(f"#{number} {title} (by {author})", review)


def give_feedback(fleet: Fleet, platforms: Platforms) -> None:
    tell("Ada tags the supervisor below #2", "it gets a copy of what was said there; the worker hears nothing of it")
    platforms.comment(2, FEEDBACK)
    fleet.wait_for(lambda: len(platforms.answers_below(2)) > 1, "the supervisor's answer")
    quote("ada", FEEDBACK)
    quote("pr-supervisor", platforms.answers_below(2)[1])
    written = (fleet.workspaces / "pr-supervisor" / "feedback.txt").read_text()
    quote("what it wrote down, with what it had read", written)


def ask_the_manager(fleet: Fleet, platforms: Platforms) -> None:
    tell("Ada asks the manager", "it reads across all sessions of the worker")
    platforms.say(FACTORY, "how many PRs today?")
    answer = fleet.wait_for(lambda: platforms.messages_in(FACTORY), "the manager's answer")[-1]
    quote("pr-manager", answer)


def change_the_skill(fleet: Fleet, platforms: Platforms) -> None:
    tell("The supervisor proposes another skill", "the worker may write its own files only if somebody approves")
    platforms.say(OFFICE, "propose better rules")
    quote("pr-supervisor", fleet.wait_for(lambda: platforms.messages_in(OFFICE), "the proposal")[-1])
    quote("the card in Ada's direct chat", fleet.wait_for(platforms.card, "the approval's card"))
    platforms.approve()
    changed = fleet.wait_for(lambda: office_says(platforms, "About the skill"), "the worker's answer")
    quote("Ada presses Approve; pr-supervisor", changed)


def review_again(fleet: Fleet, platforms: Platforms) -> None:
    tell("All reviews are done again", "the same threads, fresh sessions, new rules; only because Ada is an admin")
    before = {one["thread_id"] for one in fleet.sessions("pr-worker")}
    platforms.say(OFFICE, "have them reviewed again")
    quote("pr-supervisor", fleet.wait_for(lambda: office_says(platforms, " again, in "), "the supervisor's answer"))
    for number in PULLS:
        reviews = 3 if number == 2 else 2  # the supervisor spoke there too
        fleet.wait_for(lambda n=number, r=reviews: len(platforms.answers_below(n)) >= r, f"another review of #{number}")
    tell("Old and new, side by side", "what `longshore replay --show SESSION` says")
    fresh = [one for one in fleet.sessions("pr-worker") if one["status"] == "active"]
    assert {one["thread_id"] for one in fresh} == before
    for one in sorted(fresh, key=lambda one: str(one["thread_id"])):
        quote(f"{one['thread_id']}, session {one['id'][-8:]}", fleet.longshore("replay", "--show", one["id"], "--wait"))


def office_says(platforms: Platforms, words: str) -> str | None:
    return next((text for text in platforms.messages_in(OFFICE) if words in text), None)


_step = 0


def tell(what: str, why: str) -> None:
    global _step
    _step += 1
    print(f"\n{_step}. {what}\n   {why}", flush=True)


def quote(who: str, text: str) -> None:
    lines = [part for line in text.strip().splitlines() for part in textwrap.wrap(line, WIDTH, **AS_IT_IS) or [""]]
    print("\n".join([f"   {who}:", *(f"   | {line.rstrip()}" for line in lines)]), flush=True)


if __name__ == "__main__":
    main()
