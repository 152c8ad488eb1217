"""What agents write for GitHub, so that all of it is seen and none of it is an order to another program.

For comments and for pull requests. Code is left as it is: there nothing is hidden or carried out."""

import re
from typing import Final

# Accounts of programs that do what a comment tells them.
_BOTS: Final = "dependabot|renovate(?:-bot)?|mergify(?:io)?|github-actions|copilot|bors|k8s-ci-robot"
# In what an agent writes: code, and outside of it what hides text or gives orders to programs that read comments.
_SPECIAL: Final = re.compile(
    r"(?P<code>```.*?```|~~~.*?~~~|`[^`\n]*`)|(?P<hidden><!--)|(?P<slash>^ {0,3})/"
    rf"|(?<![\w@.+-])@(?P<called>[\w-]+/[\w.-]+|[\w-]+\[bot\]|(?:{_BOTS})(?![\w-]))",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)


def visible(text: str) -> str:
    """Markdown as it is, but nothing hidden, and no orders: outside of code a comment of HTML is shown, a line does not
    begin with a slash, and teams and known bots are named without being called."""
    return _SPECIAL.sub(_harmless, text)


def _harmless(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "hidden":
            return "&lt;!--"
        case "slash":
            return f"{found['slash']}\\/"
        case "called":
            return f"@\u200b{found['called']}"
        case _:
            return found[0]
