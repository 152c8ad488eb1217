"""Which sandbox is used: the name in the settings leads to the class."""

from collections.abc import Callable
from pathlib import Path

from adapters.errors import SandboxError
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.docker import Docker
from adapters.sandbox.none import Unconfined
from adapters.sandbox.port import Sandbox
from adapters.sandbox.proxy import Resolver, public_addresses

_SANDBOXES: dict[str, Callable[[str, int, Resolver, Path | None], Sandbox]] = {
    "bubblewrap": lambda image, uid, resolve, root: Bubblewrap(uid, resolve, root),
    "docker": lambda image, uid, resolve, root: Docker(image, uid_when_root=uid, resolve=resolve, workspace_root=root),
    "none": lambda image, uid, resolve, root: Unconfined(),
}


def make_sandbox(
    name: str,
    *,
    image: str,
    uid: int,
    resolve: Resolver = public_addresses,
    workspace_root: Path | None = None,
) -> Sandbox:
    """`uid` is the user of programs if the worker is root's; `resolve` says which addresses their proxy may reach."""
    if name not in _SANDBOXES:
        raise SandboxError(f"there is no sandbox {name!r}; there are {', '.join(_SANDBOXES)}")
    return _SANDBOXES[name](image, uid, resolve, workspace_root)
