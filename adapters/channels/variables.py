"""A driver's settings, from the environment. One that is set and malformed is refused by its name; its value is never
shown, because it may be a secret."""

import os
import re
from typing import Final

from adapters.errors import ChannelError

ADDRESS: Final = (r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", "an address that begins with https:// and has no query")
KEY: Final = (r"[\x21-\x7e]{1,1000}", "a key: letters, digits and signs without spaces")
SECRET: Final = (r"[^\x00-\x1f]{1,1000}", "one line of text")
FOLDER: Final = (r"[^\x00-\x1f/]{1,255}", "the folder of an agent")


def variable(name: str, given: str | None, form: tuple[str, str], default: str = "") -> str:
    """What was handed in, else what the environment says, else `default`. `form`: a pattern, and in words."""
    value = (os.environ.get(name) if given is None else given) or default
    pattern, words = form
    if value and re.fullmatch(pattern, value) is None:
        raise ChannelError(f"{name} is not {words}")
    return value
