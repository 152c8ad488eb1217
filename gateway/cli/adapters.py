"""`longshore adapters`: for makers of drivers, a key and a signed wheel. Needs no database and no broker."""

from pathlib import Path
from typing import Annotated

import typer

from adapters.errors import SigningError
from gateway.cli.desk import fail, out, shown

adapters = typer.Typer(help="Sign drivers that you make for others.", no_args_is_help=True)


@adapters.command()
def keygen(
    file: Annotated[Path, typer.Argument(help="where the private key goes; keep it to yourself")],
) -> None:
    """Make a key pair: the private key is written to FILE, the public one is shown."""
    from adapters.packages.signing import make_key  # only here: it takes a moment, and no other command needs it

    try:
        public = make_key(file)
    except SigningError as error:
        fail(str(error))
    out.print(f"private key: {shown(file)} [dim](sign with it, and show it to nobody)[/dim]", soft_wrap=True)
    out.print(f"public key:  {public} [dim](operators allow your drivers as ID@KEY)[/dim]", soft_wrap=True)


@adapters.command()
def sign(
    wheel: Annotated[Path, typer.Argument(help="a wheel, as `pip wheel` or `python -m build` makes it")],
    key: Annotated[Path, typer.Option("--key", help="the private key file")],
    vendor: Annotated[str, typer.Option("--vendor", help="who makes it; else the wheel's author")] = "",
) -> None:
    """Sign WHEEL in place. Do it last: whatever changes afterwards is refused where it is installed."""
    from adapters.packages.signing import load_key, public_key, sign_wheel

    try:
        private = load_key(key)
        package = sign_wheel(wheel, private, vendor)
    except SigningError as error:
        fail(str(error))
    out.print(f"signed {shown(wheel.name)}: {len(package.files)} files, by {shown(package.vendor)}", soft_wrap=True)
    allowed = ",".join(f"{adapter.id}@{public_key(private)}" for adapter in package.adapters)
    out.print(f"operators set: LONGSHORE_ADAPTERS={shown(allowed)}", soft_wrap=True)
