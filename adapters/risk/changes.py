"""What a change to a repository asks for before it is merged: always a yes to the merge itself, and one for each thing
in it that somebody should know of. A judgement of names and words, like all of this package."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from adapters.git.listings import Changed
from adapters.policy import Category, Policy
from adapters.redaction import Redactor
from adapters.risk.files import is_deployment, is_manifest, is_secret

MOST_NAMED: Final = 20
_SECRET: Final = Redactor()  # knows the shapes of keys, and no key of ours


@dataclass(frozen=True)
class Reason:
    """Why somebody is asked. `paths`: the files that are meant, the first of them."""

    category: Category
    words: str
    paths: tuple[str, ...] = ()


def reasons_to_ask(files: Sequence[Changed], diff: str, policy: Policy, *, is_whole: bool = True) -> list[Reason]:
    """`diff` is looked at for keys in what it adds, so it must be as it is: nothing hidden, and all of it if it
    `is_whole`. What the policy does not ask for is left out, but not the merge."""
    paths = [one.path for one in files]
    found = [
        _reason("dependency", "it changes what the project depends on", [path for path in paths if is_manifest(path)]),
        _reason("secrets", "it touches files that usually hold secrets", [path for path in paths if is_secret(path)]),
        _reason(
            "deploy", "it changes how the project is built or deployed", [path for path in paths if is_deployment(path)]
        ),
    ]
    if found[1] is None and _adds_a_key(diff):
        found[1] = Reason("secrets", "it adds something that looks like a key or a password")
    if found[1] is None and not is_whole:
        found[1] = Reason("secrets", "it is too long to be looked through for keys and passwords")
    lines = sum((one.added or 0) + (one.removed or 0) for one in files)
    if len(files) > policy.large_diff.files or lines > policy.large_diff.lines:
        found.append(Reason("large diff", f"it is large: {len(files):,} files, {lines:,} lines"))
    asked = [reason for reason in found if reason is not None and reason.category in policy.approve_for]
    return [Reason("merge", "it is merged", tuple(paths[:MOST_NAMED])), *asked]


def _reason(category: Category, words: str, paths: list[str]) -> Reason | None:
    return Reason(category, words, tuple(paths[:MOST_NAMED])) if paths else None


def _adds_a_key(diff: str) -> bool:
    # By line feeds only: any other break may stand within a line that is added.
    added = "\n".join(line[1:] for line in diff.split("\n") if line.startswith("+"))
    return _SECRET.text(added) != added
