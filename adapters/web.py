"""Fetching what others put on the web: public addresses only, whatever a name, a redirect or a resolver says."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Fetched:
    """`url` is where it came from in the end. `cut`: there was more than was asked for."""

    url: str
    status: int
    media_type: str
    body: bytes
    cut: bool = False


class Web:
    """One per process."""

    def __init__(self, private_hosts: Collection[str] = ()) -> None:
        """`private_hosts` are names (or host:port) that may be asked although their address is not public."""
        self._private_hosts = frozenset(private_hosts)

    async def get(self, url: str, *, max_bytes: int, seconds: float, hosts: Collection[str] = ("*",)) -> Fetched:
        """The body of a GET, at most `max_bytes` of it after decompression. Raises WebError with a reason for the
        agent. `hosts` are those that may be asked, also by a redirect."""
        raise NotImplementedError

    async def close(self) -> None: ...
