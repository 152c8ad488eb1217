"""`longshore`: readable by people, `--json` for programs.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 69 a service (database, broker) is not there."""

from gateway.cli.main import main

__all__ = ["main"]
