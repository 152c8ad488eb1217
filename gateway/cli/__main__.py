"""`python -m gateway.cli`: the command line, by the interpreter that runs."""

from gateway.cli import main

main()
