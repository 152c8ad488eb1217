"""The maker's side of a signed driver: a key pair, and a wheel with its signature inside.

The private key is written once, readable by its owner alone, and never shown. `longshore adapters` is the command."""

import base64
import csv
import io
import os
import zipfile
from configparser import ConfigParser
from configparser import Error as ConfigError
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from adapters.errors import SigningError
from adapters.packages.manifest import (
    GROUPS,
    MANIFEST,
    SIGNATURE,
    Adapter,
    AdapterPackage,
    measure,
    signed_text,
    write_key,
)

# The oldest date a zip file can hold: the same wheel and key give the same bytes.
_DATE: Final = (1980, 1, 1, 0, 0, 0)


def make_key(path: Path) -> str:
    """Write a new private key (PEM) and return the public one, as operators write it."""
    key = Ed25519PrivateKey.generate()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SigningError(f"{path} exists; a key is never written over: choose another name") from None
    except OSError as error:
        raise SigningError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return public_key(key)


def load_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SigningError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise SigningError(f"{path} is not a private key without a password: longshore adapters keygen") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningError(f"{path} is a key of another kind than Ed25519: longshore adapters keygen")
    return key


def public_key(key: Ed25519PrivateKey) -> str:
    return write_key(key.public_key().public_bytes_raw())


def sign_wheel(wheel: Path, key: Ed25519PrivateKey, vendor: str = "") -> AdapterPackage:
    """Put the list of drivers and files, and its signature, into a wheel. A signature that is there is replaced."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            contents = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    except (OSError, zipfile.BadZipFile) as error:
        raise SigningError(f"{wheel} is not a wheel that can be read: {error}") from None
    info = _info_folder(wheel, contents)
    for made in (f"{info}/RECORD", f"{info}/{MANIFEST}", f"{info}/{SIGNATURE}"):
        contents.pop(made, None)
    if moved := next((name for name in contents if name.partition("/")[0].endswith(".data")), None):
        raise SigningError(f"{wheel} holds {moved}, which an installer puts elsewhere: a driver is made of packages")
    package = _describe(wheel, info, contents, vendor)
    contents[f"{info}/{MANIFEST}"] = package.to_bytes()
    contents[f"{info}/{SIGNATURE}"] = key.sign(signed_text(package.to_bytes())).hex().encode() + b"\n"
    contents[f"{info}/RECORD"] = _record(contents, f"{info}/RECORD")
    _write(wheel, contents)
    return package


def _info_folder(wheel: Path, contents: dict[str, bytes]) -> str:
    folders = {name.partition("/")[0] for name in contents if name.partition("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise SigningError(f"{wheel} is not a wheel: it has {len(folders)} .dist-info folders")
    return folders.pop()


def _describe(wheel: Path, info: str, contents: dict[str, bytes], vendor: str) -> AdapterPackage:
    points = ConfigParser(delimiters=("=",), interpolation=None)
    points.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their letters
    try:
        points.read_string(contents.get(f"{info}/entry_points.txt", b"").decode())
    except (ConfigError, UnicodeDecodeError) as error:
        raise SigningError(f"{wheel}: entry_points.txt does not read: {error}") from None
    adapters = [
        Adapter(id=name, kind=kind, entry_point=value)
        for group, kind in GROUPS.items()
        if points.has_section(group)
        for name, value in points.items(group)
    ]
    if not adapters:
        raise SigningError(f"{wheel} has no driver: no entry point in {', '.join(GROUPS)}")
    about = HeaderParser().parsestr(contents.get(f"{info}/METADATA", b"").decode("utf-8", "replace"))
    vendor = vendor or about.get("Author") or about.get("Author-email") or ""
    if not vendor:
        raise SigningError(f"{wheel} does not say who made it: pass --vendor, or set authors in pyproject.toml")
    return AdapterPackage(
        distribution=about.get("Name") or "",
        version=about.get("Version") or "",
        vendor=vendor,
        adapters=tuple(adapters),
        files={name: measure(content) for name, content in sorted(contents.items())},
    )


def _record(contents: dict[str, bytes], own_name: str) -> bytes:
    """The wheel's own list of files, in the form its format asks for."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(bytes.fromhex(measure(content))).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((own_name, "", ""))
    return text.getvalue().encode()


def _write(wheel: Path, contents: dict[str, bytes]) -> None:
    """Beside it and then in its place: a wheel is never half written."""
    half = wheel.with_name(f".{wheel.name}.signing")
    try:
        with zipfile.ZipFile(half, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                entry = zipfile.ZipInfo(name, _DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
        half.replace(wheel)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise SigningError(f"{wheel} cannot be written: {error.strerror}") from None
