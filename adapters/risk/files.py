"""Files that are asked about for their names: those that usually hold secrets, and those that say what a project
depends on."""

import fnmatch
import re
from typing import Final


def _one_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)))


_SECRET_NAMES: Final = _one_of(
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.keystore", "*.jks", "id_rsa*", "id_dsa*", "id_ecdsa*"),
    *(
        "id_ed25519*",
        ".netrc",
        "_netrc",
        ".pgpass",
        ".npmrc",
        ".pypirc",
        ".git-credentials",
        "credentials",
        ".htpasswd",
    ),
    *("credentials.json", "credentials.y*ml", "service-account*.json", "secrets.json", "secrets.y*ml", "secrets.env"),
    *("*.kdbx", "*.ovpn", "kubeconfig", ".vault-token", "auth.json", "*.tfstate"),
)
_SECRET_FOLDERS: Final = {".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".password-store", "gcloud"}
_NO_SECRETS: Final = re.compile(r".*\.(example|sample|template|dist|pub|md)", re.IGNORECASE)
_SECRET_PLACES: Final = re.compile(r"/proc/[^/]*/environ|/etc/(shadow|sudoers).*|/run/secrets/.*")
# What a pattern of the shell is tried on, to see whether it means one of those.
_EXAMPLES: Final = (".env", ".env.local", "id_rsa", ".netrc", "server.pem", ".ssh", ".aws", "credentials.json")

_MANIFESTS: Final = _one_of(
    *(
        "package.json",
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "bun.lockb",
    ),
    *(
        "requirements*.txt",
        "requirements*.in",
        "constraints*.txt",
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "uv.lock",
    ),
    *("poetry.lock", "pdm.lock", "Pipfile", "Pipfile.lock", "Cargo.toml", "Cargo.lock", "go.mod", "go.sum", "Gemfile"),
    *("Gemfile.lock", "composer.json", "composer.lock", "pom.xml", "build.gradle*", "environment.y*ml", "deno.lock"),
)


def is_secret(path: str, *, pattern: bool = False) -> bool:
    """Whether a file of this name usually holds secrets. `pattern`: a shell would look for files that fit it."""
    if _SECRET_PLACES.fullmatch(path):
        return True
    parts = [part for part in path.split("/") if part]
    if not parts:
        return False
    if any(part in _SECRET_FOLDERS for part in parts):
        return True
    name = parts[-1]
    if pattern and not name.startswith(("*", "?")) and any(fnmatch.fnmatchcase(known, name) for known in _EXAMPLES):
        return True
    return bool(_SECRET_NAMES.match(name)) and not _NO_SECRETS.fullmatch(name)


def is_manifest(path: str) -> bool:
    """Whether it says what a project depends on."""
    return bool(_MANIFESTS.match(path.rsplit("/", 1)[-1]))
