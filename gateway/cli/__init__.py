"""`longshore`: readable by people, `--json` for programs.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 69 a service (database, broker) is not there."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["mcp"]:
        # CLI agents start this in every turn: it does without the rest, which takes a second to import.
        from gateway.cli.mcp import mcp

        mcp()
    else:
        from gateway.cli.main import app

        app()
