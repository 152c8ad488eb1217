"""The system calls that a program in the sandbox may not make, as a BPF program the kernel takes.

Namespaces hide what is outside; this closes doors inside: ptrace of the sandbox's own pid 1, new namespaces, mounts,
keyrings (which know no namespace), sockets of families that no network namespace holds (vsock reaches a VM's host), and
memory that counts for no process."""

import errno
import platform
import struct
from dataclasses import dataclass
from functools import cache

from adapters.errors import SandboxError

_LOAD, _JUMP_EQUAL, _JUMP_MORE, _JUMP_FROM, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink: all others lead somewhere that is not unshared
# A System V segment outlives its processes and is in nobody's resident memory; databases ask for a few bytes only.
_LARGEST_SEGMENT = 1 << 16

# New calls have the same number everywhere.
_NEW = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
_X86_64 = {
    "ptrace": 101,
    "syslog": 103,
    "uselib": 134,
    "vhangup": 153,
    "modify_ldt": 154,
    "pivot_root": 155,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "iopl": 172,
    "ioperm": 173,
    "create_module": 174,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "nfsservctl": 180,
    "lookup_dcookie": 212,
    "clock_settime": 227,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}
_AARCH64 = {
    "lookup_dcookie": 18,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "vhangup": 58,
    "quotactl": 60,
    "acct": 89,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "reboot": 142,
    "settimeofday": 170,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "swapon": 224,
    "swapoff": 225,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "open_by_handle_at": 265,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}


@dataclass(frozen=True)
class _Machine:
    """One architecture: its audit name, the calls refused whatever their arguments, and those that depend on them."""

    arch: int
    refused: dict[str, int]
    clone: int
    ioctl: int
    socket: int
    shmget: int
    memfd_create: int
    clone3: int = 435
    memfd_secret: int = 447


_MACHINES = {
    "x86_64": _Machine(0xC000003E, _X86_64 | _NEW, clone=56, ioctl=16, socket=41, shmget=29, memfd_create=319),
    "aarch64": _Machine(0xC00000B7, _AARCH64 | _NEW, clone=220, ioctl=29, socket=198, shmget=194, memfd_create=279),
}


@cache
def seccomp_program(machine: str = "") -> bytes:
    """The filter for this kind of machine. Raises SandboxError where none is known: without it the sandbox leaks."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine or platform.machine(), machine or platform.machine())
    if name not in _MACHINES:
        raise SandboxError(f"there is no system call filter for {name} processors")
    return b"".join(_instructions(_MACHINES[name]))


def _instructions(machine: _Machine) -> list[bytes]:
    program = [
        _step(_LOAD, _ARCH),
        _step(_JUMP_EQUAL, machine.arch, 1, 0),
        _step(_RETURN, _KILL),  # 32-bit calls have other numbers and would walk past every rule below
        _step(_LOAD, _NUMBER),
    ]
    if machine.arch == _MACHINES["x86_64"].arch:
        program += [_step(_JUMP_FROM, _X32, 0, 1), _step(_RETURN, _KILL)]
    for number in sorted(machine.refused.values()):
        program += _when(number, [_refuse(errno.EPERM)])
    # "Not implemented" makes libc fall back: to clone(), whose flags can be read, and to files in /tmp and /dev/shm,
    # whose size is limited.
    for number in (machine.clone3, machine.memfd_create, machine.memfd_secret):
        program += _when(number, [_refuse(errno.ENOSYS)])
    program += _when(
        machine.clone, [_argument(0), _step(_JUMP_BITS, _NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM), _allow()]
    )
    program += _when(
        machine.ioctl,
        [
            _argument(1),
            _step(_JUMP_EQUAL, _TIOCSTI, 1, 0),
            _step(_JUMP_EQUAL, _TIOCLINUX, 0, 1),
            _refuse(errno.EPERM),
            _allow(),
        ],
    )
    families = [_step(_JUMP_EQUAL, family, len(_FAMILIES) - i, 0) for i, family in enumerate(_FAMILIES)]
    program += _when(machine.socket, [_argument(0), *families, _refuse(errno.EAFNOSUPPORT), _allow()])
    program += _when(
        machine.shmget,
        [
            _argument(1, high=True),
            _step(_JUMP_EQUAL, 0, 0, 2),
            _argument(1),
            _step(_JUMP_MORE, _LARGEST_SEGMENT, 0, 1),
            _refuse(errno.ENOMEM),
            _allow(),
        ],
    )
    return [*program, _allow()]


def _when(number: int, then: list[bytes]) -> list[bytes]:
    """`then` must end in a return: the number that was loaded is overwritten by it."""
    return [_step(_JUMP_EQUAL, number, 0, len(then)), *then]


def _argument(index: int, high: bool = False) -> bytes:
    """Arguments have 64 bits, a BPF register 32; both machines are little-endian."""
    return _step(_LOAD, _ARGUMENTS + 8 * index + (4 if high else 0))


def _refuse(code: int) -> bytes:
    return _step(_RETURN, _ERRNO | code)


def _allow() -> bytes:
    return _step(_RETURN, _ALLOW)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One struct sock_filter; the jumps are counted from the next one."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
