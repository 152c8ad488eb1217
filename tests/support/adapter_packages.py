"""Installed distributions for tests, made of the files an installer leaves and no more; and signed ones."""

import json
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path
from zipfile import ZipFile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from adapters.packages.signing import sign_wheel

Points = Mapping[str, Mapping[str, str]]


def install(folder: Path, name: str, points: Points, *, editable: bool = False) -> Distribution:
    """A distribution of version 1.0 with these entry points and no code."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    for file, text in _about(name, points).items():
        (info / file).write_text(text)
    if editable:
        (info / "direct_url.json").write_text(json.dumps({"url": "file:///src", "dir_info": {"editable": True}}))
    (info / "RECORD").write_text("".join(f"{info.name}/{file.name},,\n" for file in info.iterdir()))
    return Distribution.at(info)


def build(folder: Path, name: str, points: Points, files: Mapping[str, str], key: Ed25519PrivateKey) -> Path:
    """A signed wheel, with the installer's notes left out."""
    wheel = folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    with ZipFile(wheel, "w") as archive:
        for file, text in {**files, **{f"{info}/{file}": text for file, text in _about(name, points).items()}}.items():
            archive.writestr(file, text)
    sign_wheel(wheel, key)
    return wheel


def unpack(wheel: Path, folder: Path) -> Distribution:
    """What an installer does with a wheel that is only packages."""
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return Distribution.at(next(folder.glob("*.dist-info")))


def _about(name: str, points: Points) -> dict[str, str]:
    sections = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in found.items()) for group, found in points.items())
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nAuthor: Example\n",
        "entry_points.txt": "\n".join(sections),
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
