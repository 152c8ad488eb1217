"""A simple prompt cache: the longest prefix of the prompt that an earlier request with the same key also had.

Prefixes are compared segment by segment (tools, instructions, each message), which is coarser than the real thing
and enough to see whether a client keeps its prefix stable. Nothing expires."""

import threading
from dataclasses import dataclass
from hashlib import sha256

from tests.support.model_api.conversation import Conversation


@dataclass(frozen=True)
class CachedTokens:
    """How the tokens of one prompt divide."""

    fresh: int
    read: int = 0
    written: int = 0


def tokens_of(text: str) -> int:
    """About four characters per token, and never none for something."""
    return -(-len(text) // 4)


class PromptCache:
    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._lock = threading.Lock()

    def visit(self, key: str, conversation: Conversation) -> CachedTokens:
        """Count this prompt's tokens, and remember its prefixes for the next request."""
        sizes = [tokens_of(segment) for segment in conversation.segments]
        digest = sha256(f"{key}\0{conversation.wire}\0{conversation.model}".encode())
        prefixes = []
        for segment in conversation.segments[: conversation.cacheable]:
            digest.update(segment.encode() + b"\0")
            prefixes.append(digest.digest())
        with self._lock:
            known = next((n for n in range(len(prefixes), 0, -1) if prefixes[n - 1] in self._seen), 0)
            self._seen.update(prefixes)
        # Only Anthropic bills the writing of a cache.
        written = sum(sizes[known : conversation.cacheable]) if conversation.wire == "anthropic" else 0
        read = sum(sizes[:known])
        return CachedTokens(fresh=sum(sizes) - read - written, read=read, written=written)
