"""Importing exactly what was signed. Used for drivers that are allowed by their maker's key.

Checking files first and importing them later would leave two doors open: compiled files, which Python prefers to
sources it thinks unchanged, and files that come or change in between. So each module is measured as it is read."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from adapters.packages.manifest import measure


@dataclass(frozen=True)
class SignedFinder(MetaPathFinder):
    """Finds the modules of one distribution, and refuses those that its maker did not sign."""

    distribution: str
    root: Path
    files: Mapping[str, str]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:  # not there, or a folder that has no code of its own
            return spec
        digest = self.files.get(self._name(spec.origin))
        if digest is None:
            raise ImportError(f"{spec.origin} is not among the files that the maker of {self.distribution} signed")
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _SignedSource(fullname, spec.origin, digest)
        else:
            _check(spec.origin, Path(spec.origin).read_bytes(), digest)
        return spec

    @property
    def _packages(self) -> set[str]:
        return {name.partition("/")[0].partition(".")[0] for name in self.files}

    def _name(self, origin: str) -> str:
        try:
            return Path(origin).resolve().relative_to(self.root).as_posix()
        except ValueError:
            return ""


class _SignedSource(SourceFileLoader):
    def __init__(self, fullname: str, path: str, digest: str) -> None:
        super().__init__(fullname, path)
        self._digest = digest

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path)
        _check(self.path, source, self._digest)
        code: CodeType = self.source_to_code(source, self.path)
        return code


def import_only_signed(distribution: str, root: Path, files: Mapping[str, str]) -> None:
    """From now on, for this whole process, modules of these files are imported as they were signed or not at all."""
    finder = SignedFinder(distribution, root, files)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def _check(path: str, content: bytes, digest: str) -> None:
    if measure(content) != digest:
        raise ImportError(f"{path} is not as its maker signed it; install the distribution again")
