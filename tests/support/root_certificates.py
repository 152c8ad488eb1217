"""The machine's root certificates are read once for all HTTP clients of a process, not once for each: it takes as long
as a small test."""

import os
import ssl
from functools import cache

import httpcore2

_read = httpcore2.default_ssl_context


@cache
def _context(trust_env: bool, _file: str | None, _folder: str | None) -> ssl.SSLContext:
    return _read(_trust_env=trust_env)


def _default_ssl_context(*, _trust_env: bool = True) -> ssl.SSLContext:
    return _context(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def read_once() -> None:
    httpcore2.default_ssl_context = _default_ssl_context
