"""What a command of a shell comes down to: which programs it would start, which further lines it hands to a shell, and
whether it hides what it does. Words only; nothing is run or looked up."""

import os.path
import re
from collections.abc import Iterator, Sequence
from typing import Final

from adapters.risk.quoting import UNKNOWN, Simple, Word
from adapters.risk.rules import PROGRAMS, found_by_rule, is_unclear, subcommands
from adapters.risk.words import ASSIGNMENT

SHELLS: Final = {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash"}
_RESERVED: Final = {"if", "then", "else", "elif", "do", "while", "until", "{", "!"}
# Programs whose words are another program's: where it begins depends on options nobody lists.
_CARRIERS: Final = {
    *("sudo", "doas", "su", "runuser", "env", "xargs", "parallel", "timeout", "nice", "ionice", "nohup", "time"),
    *("stdbuf", "setsid", "command", "builtin", "exec", "chroot", "unshare", "nsenter", "strace", "ltrace", "flock"),
    *("script", "busybox", "toybox", "coproc", "for", "select", "case", "function", "npx", "bunx", "uvx", "pipx", "uv"),
    *("poetry", "pdm", "hatch", "rye", "pnpm", "yarn", "npm", "bun", "bundle", "conda", "docker", "podman", "watch"),
    *("systemd-run", "entr", "hyperfine", "caffeinate", "xvfb-run", "dotenv", "direnv", "eatmydata", "fakeroot"),
    *("taskset", "chrt", "numactl", "prlimit", "setpriv", "pkexec", "ssh-agent", "sshpass", "tmux", "screen"),
}
# Of those, the ones that start whatever follows; the others have words of their own, which are often variables.
_STARTERS: Final = {"sudo", "doas", "env", "xargs", "nice", "nohup", "time", "command", "builtin", "exec", "setsid"}
# And those that add words, out of what they read.
_FEEDERS: Final = {"xargs", "parallel"}
_FED: Final = Word(UNKNOWN, known=False)
MOST_CARRIED: Final = 200
_EXECUTES: Final = {"-exec", "-execdir", "-ok", "-okdir"}
_HANDS_LINES_ON: Final = {
    *("eval", "trap", "watch", "xargs", "parallel", "entr", "hyperfine", "script", "timeout"),
    *("tmux", "screen", "flock"),
}
_GIT_RUNS: Final = {"foreach", "run", "--exec", "-x"}
# How a word begins that says that there is code among an interpreter's words; there always is, for awk.
_INLINE: Final = {
    **dict.fromkeys(("node", "nodejs", "bun"), r"-[a-zA-Z]*[ep]|--eval|--print"),
    **dict.fromkeys(("perl", "ruby", "lua"), r"-\w*[eE]"),
    **dict.fromkeys(("awk", "gawk", "mawk"), r""),
    "python": r"-[a-zA-Z]*c",
    "php": r"-[a-zA-Z]*[rBRE]|--run",
    "deno": r"eval",
}
_STARTS_PROGRAMS: Final = re.compile(
    r"subprocess|os\.(system|popen|exec|spawn)|pty\.spawn|child_process|execSync|spawnSync|(?<![.\w])exec\s*[(' \"]"
    r"|(?<![.\w])system\s*[(' \"]|popen|%x|\|\s*getline|(?<![.\w-])eval\b|__import__"
)
_KNOWN_FOLDER: Final = re.compile(r"\$\{?(HOME|PWD|VIRTUAL_ENV|TMPDIR)\}?/[^$]*")
# Others may be somebody's aliases.
_GIT: Final = {
    *("add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bundle", "cat-file", "check-attr"),
    *("check-ignore", "checkout", "cherry", "cherry-pick", "clean", "clone", "commit", "config", "count-objects"),
    *("describe", "diff", "diff-files", "diff-index", "diff-tree", "fetch", "for-each-ref", "format-patch", "fsck"),
    *("gc", "grep", "hash-object", "help", "init", "log", "ls-files", "ls-remote", "ls-tree", "maintenance", "merge"),
    *("merge-base", "merge-tree", "mv", "name-rev", "notes", "prune", "pull", "push", "range-diff", "read-tree"),
    *("rebase", "reflog", "remote", "repack", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog"),
    *("show", "show-branch", "show-ref", "sparse-checkout", "stage", "stash", "status", "submodule", "switch", "tag"),
    *("symbolic-ref", "update-index", "var", "verify-commit", "verify-tag", "version", "whatchanged", "worktree"),
}
_GIT_SETTINGS: Final = re.compile(
    r"alias\.|core\.(sshcommand|pager|editor|hookspath|fsmonitor|askpass)|\.(textconv|command|clean|smudge|process)\b"
    r"|credential\.|diff\.external",
    re.IGNORECASE,
)


def started(command: Simple) -> list[Word]:
    """Its words without those of the shell's grammar, and without variables that are set behind them."""
    words = list(command.words)
    while words and (ASSIGNMENT.match(words[0].text) or (words[0].text in _RESERVED and not words[0].quoted)):
        del words[0]
    return words


def program_of(words: Sequence[Word]) -> tuple[str, list[Word]]:
    """The program's plain name and its words: /usr/bin/git and git-push are git, python3 -m pip is pip."""
    name, rest = os.path.basename(words[0].text), list(words[1:])
    if name.startswith("git-"):
        return "git", [Word(name[4:]), *rest]
    if versioned := re.fullmatch(r"(python|pip|pypy)[0-9.]+", name):
        name = versioned[1]
    if name not in ("python", "pypy", "py"):
        return name, rest
    for at, word in enumerate(rest):
        if module := re.fullmatch(r"-[bBdEiIOPqsSuvx]*m(.*)", word.text):
            named = [*([Word(module[1])] if module[1] else ()), *rest[at + 1 :]]
            return (named[0].text, named[1:]) if named else ("python", rest)
        if not word.text.startswith("-") and not (at and rest[at - 1].text in ("-X", "-W")):
            break
    return "python", rest


def starts(words: Sequence[Word]) -> Iterator[int]:
    """Where in the words a program that is known here may begin: at the first, and behind those that start another."""
    yield from sorted({0, *_executed(words)})
    for at in carried(words):
        name, _ = program_of(words[at : at + 3])
        if name in PROGRAMS or name in SHELLS or name in _INLINE or name in ("eval", "find"):
            yield at


def carried(words: Sequence[Word]) -> range:
    """All places behind a program that starts another."""
    carriers = (at for at in (_executed(words) or [0]) if program_of(words[at : at + 3])[0] in _CARRIERS)
    return range(next(carriers, len(words)) + 1, min(len(words), MOST_CARRIED))


def _executed(words: Sequence[Word]) -> list[int]:
    if program_of(words)[0] != "find":
        return []
    return [at + 1 for at, word in enumerate(words[:-1][:MOST_CARRIED]) if word.text in _EXECUTES]


def fed(before: Sequence[Word]) -> list[Word]:
    """What a program is started with besides its own words, by what stands before them."""
    return [_FED] if any(os.path.basename(word.text) in _FEEDERS for word in before) else []


def scripts(program: str, words: Sequence[Word], command: Simple) -> Iterator[str]:
    """Lines of shell that are handed over as words or as input."""
    if program in SHELLS or program == "su":
        for at, word in enumerate(words):
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command|--session-command", word.text):
                yield from (after.text for after in words[at + 1 :] if not after.text.startswith("-"))
                return
        yield from command.given
    elif program in _HANDS_LINES_ON:
        yield " ".join(word.text for word in words if not word.text.startswith("-"))
        yield from (word.text for word in words if " " in word.text)
    elif program == "env":
        yield from (re.sub(r"^(-S|--split-string=?)", "", word.text) for word in words if " " in word.text)
    elif program == "git":
        places = [at for at, word in enumerate(words) if word.text in _GIT_RUNS]
        yield from (" ".join(word.text for word in words[at + 1 :]) for at in places[:1])


def inline(program: str, words: Sequence[Word], given: Sequence[str]) -> list[str]:
    """Code for an interpreter, among its words or as input."""
    if program not in _INLINE:
        return []
    says = re.compile(_INLINE[program])
    texts = [word.text for word in words if not says.fullmatch(word.text)]
    return [*given, *(texts if any(says.match(word.text) for word in words) else ())]


def hidden(program: str, words: Sequence[Word], handed_on: Sequence[str], code: Sequence[str]) -> str:
    """Why it cannot be said what this program does; empty if it can."""
    texts = [word.text for word in words]
    files = [word for word in words if not word.text.startswith(("-", "+"))]
    elsewhere = not files or not files[0].known or files[0].text.startswith("/dev/")
    if program in SHELLS and not handed_on and elsewhere and texts not in (["--version"], ["--help"]):
        return "it is a shell that reads its commands from elsewhere"
    if program in ("source", ".") and elsewhere:
        return "it runs commands from elsewhere"
    if program == "eval" and not all(word.known for word in words):
        return "it makes a command out of what is not known before it runs"
    if program == "alias" and any("=" in text for text in texts):
        return "it gives a command another name"
    if program == "git":
        return _hidden_by_git(words)
    if is_unclear(program, texts):
        return f"what {program} is to do is not known before it runs"
    backticks = program in ("perl", "ruby", "php") and any("`" in text for text in code)
    if backticks or any(_STARTS_PROGRAMS.search(text) for text in code):
        return "it starts programs out of code that is not read here"
    return ""


def _hidden_by_git(words: Sequence[Word]) -> str:
    texts = [word.text for word in words]
    sets = any(text in ("-c", "config") or text.startswith(("--config-env", "-c")) for text in texts)
    if sets and any(_GIT_SETTINGS.search(text) for text in texts):
        return "it makes git run something else"
    places = list(subcommands(texts))
    if not places or any(words[at].known and not words[at].pattern and texts[at] in _GIT for at in places):
        return ""
    if found_by_rule("git", texts):
        return ""
    return f"git {texts[places[-1]][:80]} may be another name for anything"


def starts_unknown(words: Sequence[Word]) -> bool:
    """Whether the program itself is a variable, a pattern or the outcome of another."""
    if words[0].text in ("[", "[["):
        return False
    program, rest = program_of(words)
    if (program in _CARRIERS or program == "find") and len(words) > MOST_CARRIED:
        return True
    rest = [word for word in rest if not ASSIGNMENT.match(word.text)]
    first = [words[0]]
    while not any(word.pattern or not (word.known or _KNOWN_FOLDER.fullmatch(word.text)) for word in first):
        places = list(subcommands([word.text for word in rest])) if program in _STARTERS else []
        if not places:
            return False
        first = [rest[at] for at in places]
        program, rest = program_of([*rest[places[-1] :], *([_FED] if program in _FEEDERS else ())])
    return True
