"""The console's own files: style, scripts, the picture in the tab. Read once, at start; there are few and small ones.

An address carries the hash of what is there, so that browsers keep a file for good and never an old one."""

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response

_FOLDER: Final = Path(__file__).parent / "static"
_YEAR: Final = 365 * 86_400


@dataclass(frozen=True)
class StaticFile:
    body: bytes
    media_type: str
    mark: str


@cache
def static_files() -> dict[str, StaticFile]:
    """By their path below `static`."""
    return {path.relative_to(_FOLDER).as_posix(): _read(path) for path in sorted(_FOLDER.rglob("*")) if path.is_file()}


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    return StaticFile(body, kind, hashlib.sha256(body).hexdigest()[:16])


def address_of(name: str) -> str:
    """For templates. KeyError: there is no such file, which a test finds."""
    return f"/console/static/{name}?v={static_files()[name].mark}"


router = APIRouter()


@router.get("/static/{name:path}")
async def static_file(name: str, request: Request, v: str = "") -> Response:
    found = static_files().get(name)
    if found is None:
        raise HTTPException(404, "there is no such file")
    kept = f"public, max-age={_YEAR}, immutable" if v == found.mark else "no-cache"
    headers = {"ETag": f'"{found.mark}"', "Cache-Control": kept}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)
