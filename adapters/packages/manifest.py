"""What the maker of a driver signs: a list of the distribution's drivers and files, and how a file is measured.

The list is `longshore-adapter.json` in the distribution's `.dist-info` folder, the signature `longshore-adapter.sig`
beside it. Made by `signing.py`, checked by `trust.py`; neither imports the code it is about."""

import base64
import hashlib
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

MANIFEST: Final = "longshore-adapter.json"
SIGNATURE: Final = "longshore-adapter.sig"
KEY_BYTES: Final = 32
# A signature of ours can be taken for nothing else that the same key may sign.
_PURPOSE: Final = b"longshore adapter 1\n"

Kind = Literal["provider", "channel", "tool"]
GROUPS: Final[dict[str, Kind]] = {
    "longshore.providers": "provider",
    "longshore.channels": "channel",
    "longshore.tools": "tool",
}


class Adapter(BaseModel):
    """One entry point."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: Kind
    entry_point: str


class AdapterPackage(BaseModel):
    """`files`: SHA-256, in hexadecimal, by path from the folder the distribution is installed into."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    distribution: str
    version: str
    vendor: str = Field(min_length=1)
    adapters: tuple[Adapter, ...] = Field(min_length=1)
    files: dict[str, str]

    def to_bytes(self) -> bytes:
        return self.model_dump_json(indent=1).encode() + b"\n"


def signed_text(manifest: bytes) -> bytes:
    return _PURPOSE + manifest


def measure(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_key(text: str) -> bytes | None:
    """A public key as people write it, base64 with or without its padding; None if it is none."""
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None


def write_key(key: bytes) -> str:
    return base64.b64encode(key).decode()
