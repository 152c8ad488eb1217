"""Files that are asked about for their names: those that usually hold secrets, those that say what a project depends
on, and those that say how it is built and deployed."""

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
_BRACES: Final = re.compile(r"([^{]*)\{([^{}]*)\}(.*)", re.DOTALL)
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
        "*requirements*.txt",
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
_LISTS: Final = re.compile(r"(.*/)?requirements/[^/]+\.(txt|in)")
_DEPLOYMENTS: Final = re.compile(
    r"(.*/)?("
    r"\.github/(workflows|actions)/.+|\.gitlab-ci\.ya?ml|\.circleci/.+|\.travis\.yml|Jenkinsfile|azure-pipelines\.ya?ml"
    r"|(.+\.)?Dockerfile(\..+)?|Containerfile|(docker-)?compose(\..+)?\.ya?ml|Procfile|.+\.tf|.+\.service|Chart\.yaml"
    r"|(deploy|deployment|k8s|kubernetes|helm|charts|terraform|ansible)/.+|fly\.toml|vercel\.json|netlify\.toml|app\.ya?ml"
    r")"
)
# What code names where a text begins, or goes on behind a variable: elsewhere `x.key` is no file.
_NAMED_IN_CODE: Final = re.compile(r"(?<=['\"`}<>])[\w./~-]+")


def is_secret(path: str, *, pattern: bool = False) -> bool:
    """Whether a file of this name usually holds secrets. `pattern`: a shell would look for files that fit it."""
    if pattern and (braces := _BRACES.fullmatch(path)):
        before, each, after = braces.groups()
        return any(is_secret(before + one + after.replace("{", ""), pattern=True) for one in each.split(",")[:20])
    if _SECRET_PLACES.fullmatch(path):
        return True
    parts = [part for part in path.split("/") if part]
    if not parts:
        return False
    if any(part in _SECRET_FOLDERS for part in parts):
        return True
    name = parts[-1]
    if pattern and _means_secret(name):
        return True
    return bool(_SECRET_NAMES.match(name)) and not _NO_SECRETS.fullmatch(name)


def _means_secret(pattern: str) -> bool:
    if pattern.startswith(("*", "?")):  # means many files, and those among them
        return bool(re.fullmatch(r"\*+\.env\*?", pattern))
    return any(fnmatch.fnmatchcase(known, pattern) for known in _EXAMPLES)


def secret_in(code: str) -> str:
    """The first file in some code that usually holds secrets; empty if it names none."""
    names = (name for name in _NAMED_IN_CODE.findall(code) if "." in name or "/" in name)
    return next(filter(is_secret, names), "")


def is_manifest(path: str) -> bool:
    """Whether it says what a project depends on."""
    return bool(_MANIFESTS.match(path.rsplit("/", 1)[-1]) or _LISTS.fullmatch(path))


def is_deployment(path: str) -> bool:
    """Whether it says how a project is built, shipped or run."""
    return _DEPLOYMENTS.fullmatch(path) is not None
