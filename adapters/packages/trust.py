"""Whose drivers are loaded: ours, and those of other distributions that the operator allows by LONGSHORE_ADAPTERS.

Everything is decided from files, before any of the distribution's code is imported."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, PackagePath
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import ValidationError

from adapters.errors import RefusedDriverError
from adapters.packages.manifest import (
    MANIFEST,
    SIGNATURE,
    Adapter,
    AdapterPackage,
    Kind,
    measure,
    read_key,
    signed_text,
    write_key,
)

VARIABLE: Final = "LONGSHORE_ADAPTERS"
OURS: Final = "longshore"
_AGAIN: Final = "install the distribution again, from a source you trust"


@dataclass(frozen=True)
class Origin:
    """Where a driver comes from. `signed_by` is the public key that its maker's signature was checked with."""

    distribution: str
    version: str
    ours: bool = False
    vendor: str | None = None
    signed_by: str | None = None
    root: Path = Path()
    files: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


class Allowed:
    """What the operator allows: `id` as it is, `id@key` if it is signed with that key. Several keys: any of them."""

    def __init__(self, text: str) -> None:
        self._plain: set[str] = set()
        self._keys: dict[str, list[str]] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, at, key = entry.partition("@")
            if at:
                self._keys.setdefault(name.strip(), []).append(key.strip())
            else:
                self._plain.add(name)

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> "Allowed":
        return cls(env.get(VARIABLE, ""))

    def judge(self, point: EntryPoint, kind: Kind) -> Origin:
        """Where the driver comes from, if it may be loaded; else a RefusedDriverError that says why not."""
        dist = point.dist
        if dist is None:
            raise RefusedDriverError(f"the {kind} {point.name!r} belongs to no installed distribution")
        origin = Origin(*name_and_version(dist))
        # What our own distribution names is part of this package, wherever else somebody put a folder of its name.
        if origin.distribution == OURS and point.value.startswith("adapters."):
            return replace(origin, ours=True)
        if point.name in self._plain:
            return origin
        if point.name in self._keys:
            return _verified(dist, Adapter(id=point.name, kind=kind, entry_point=point.value), self._keys[point.name])
        raise RefusedDriverError(
            f"the {kind} {point.name!r} of {origin} is not allowed: to trust it, add {point.name} "
            f"(or {point.name}@KEY, with its maker's public key) to {VARIABLE}"
        )


@lru_cache(maxsize=100)
def name_and_version(dist: Distribution) -> tuple[str, str]:
    """Read once: `dist.name` and `dist.version` parse all of its metadata each time they are looked at."""
    metadata = dist.metadata
    return metadata["Name"], metadata["Version"]


def _verified(dist: Distribution, adapter: Adapter, keys: list[str]) -> Origin:
    name, version = name_and_version(dist)
    who = f"the {adapter.kind} {adapter.id!r} of {name} {version}"
    listing = _file(dist, MANIFEST)
    signature = _file(dist, SIGNATURE)
    if listing is None or signature is None:
        if _is_editable(dist):
            raise RefusedDriverError(
                f"{who} is installed in editable mode, where nothing can be signed: allow {adapter.id} "
                f"without a key in {VARIABLE}, or install its signed wheel"
            )
        raise RefusedDriverError(
            f"{who} is not signed, and {VARIABLE} asks for a signature: get a signed wheel from its maker, "
            f"or allow {adapter.id} without a key"
        )
    key = _signer(listing, signature, keys, who)
    try:
        package = AdapterPackage.model_validate_json(listing)
    except ValidationError as error:
        raise RefusedDriverError(
            f"{who}: {MANIFEST} does not read ({error.error_count()} errors); it was made for another version"
        ) from None
    if (package.distribution, package.version) != (name, version):
        raise RefusedDriverError(f"{who}: the signature is that of {package.distribution} {package.version}; {_AGAIN}")
    if adapter not in package.adapters:
        raise RefusedDriverError(f"{who}: its entry point {adapter.entry_point} is not the signed one; {_AGAIN}")
    _check_files(dist, package, who)
    root = Path(str(dist.locate_file(""))).resolve()
    return Origin(name, version, vendor=package.vendor, signed_by=key, root=root, files=package.files)


def _signer(listing: bytes, signature: bytes, keys: list[str], who: str) -> str:
    # Only now: most fleets have nothing signed by others, and this takes a moment.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for text in keys:
        key = read_key(text)
        if key is None:
            raise RefusedDriverError(
                f"{who}: what follows the @ in {VARIABLE} is not an Ed25519 public key (44 characters of base64)"
            )
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(_decoded(signature), signed_text(listing))
        except InvalidSignature:
            continue
        return write_key(key)
    raise RefusedDriverError(
        f"{who} is not signed with the key that {VARIABLE} names, or its {MANIFEST} was changed; "
        "ask its maker for the public key"
    )


def _decoded(signature: bytes) -> bytes:
    """A signature file holds the signature in hexadecimal; anything else is one that fits nothing."""
    try:
        return bytes.fromhex(signature.decode("ascii").strip())
    except ValueError:
        return b""


def _check_files(dist: Distribution, package: AdapterPackage, who: str) -> None:
    for name, digest in package.files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise RefusedDriverError(f"{who}: {MANIFEST} names {name}, outside of the distribution; {_AGAIN}")
        try:
            content = Path(str(dist.locate_file(name))).read_bytes()
        except OSError:
            raise RefusedDriverError(f"{who}: {name} is missing or cannot be read; {_AGAIN}") from None
        if measure(content) != digest:
            raise RefusedDriverError(f"{who}: {name} is not as its maker signed it; {_AGAIN}")
    for path in dist.files or ():
        if path.as_posix() not in package.files and not _made_by_installer(path):
            raise RefusedDriverError(f"{who}: {path.as_posix()} is not among the files its maker signed; {_AGAIN}")


def _made_by_installer(path: PackagePath) -> bool:
    """Compiled modules (never read: see `signed_import.py`), start scripts, and notes about the installation."""
    return (path.suffix == ".pyc" and "__pycache__" in path.parts) or path.parts[0] == ".." or _is_note(path)


def _is_note(path: PackagePath) -> bool:
    return len(path.parts) == 2 and path.parts[0].endswith(".dist-info")


def _file(dist: Distribution, name: str) -> bytes | None:
    for path in dist.files or ():
        if _is_note(path) and path.name == name:
            try:
                return Path(str(dist.locate_file(path))).read_bytes()
            except OSError:
                return None
    return None


def _is_editable(dist: Distribution) -> bool:
    """Installed by `pip install -e`: of its sources nothing is recorded."""
    try:
        noted = json.loads(dist.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return isinstance(noted, dict) and bool((noted.get("dir_info") or {}).get("editable"))
