"""`make clis`: brings the pinned CLI agents into `.clis`, by way of the user's cache folder. Needs no root and no Node.

It fails if one cannot be installed; with LONGSHORE_REQUIRE_CLIS (names, with commas), only if one of those cannot."""

import os
import sys
from pathlib import Path

from download import NotInstalledError
from installation import Installation, locked, read_recipe, say, user_cache

REQUIRED = "LONGSHORE_REQUIRE_CLIS"
RECIPES = Path(__file__).resolve().parent


def main(names: list[str]) -> int:
    known = {path.parent.name: read_recipe(path.parent) for path in sorted(RECIPES.glob("*/package.json"))}
    required = [name.strip() for name in os.environ.get(REQUIRED, "").split(",") if name.strip()]
    if unknown := [name for name in (*names, *required) if name not in known]:
        say(f"Not a CLI agent: {', '.join(unknown)}. There are: {', '.join(known)}.\n")
        return 2
    here = Installation(Path.cwd() / ".clis", user_cache())
    failed = []
    os.umask(0o022)  # the sandbox runs them as another user
    with locked(here.folder / ".lock"):
        for program in (known[name] for name in names or known):
            say(f"{program.name} {program.version} ... ")
            try:
                say(f"{here.install(program)}\n")
            except (NotInstalledError, OSError) as error:
                failed.append(program.name)
                say(f"not installed: {error}\n")
    if failed:
        say(f"NOT INSTALLED: {', '.join(failed)}\n")
    return int(any(name in (required or known) for name in failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
