"""Names as people type them: of places, persons and platforms. Anything that cannot be one is refused."""

import unicodedata
from typing import Final

from workers.refusals import RefusedError

# Control, format (joiners of emoji are lost with them) and the two separators terminals may break lines at.
INVISIBLE: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")


class BadNameError(RefusedError):
    """It cannot be a name. The text says why."""


def check_name(what: str, name: str, most: int = 255) -> str:
    if not name.strip():
        raise BadNameError(f"{what} is empty")
    if len(name) > most:
        raise BadNameError(f"{what} has {len(name)} characters; at most {most} are taken")
    if any(unicodedata.category(char) in INVISIBLE for char in name):
        raise BadNameError(f"{what} {name!r} has characters that cannot be seen")
    return name
