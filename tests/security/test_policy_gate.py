"""What the policy gate lets through, given to real shells: none of it may push, however the line was put together."""

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

from adapters.policy import Policy
from adapters.risk import Intent, judge

PIECES = (
    *(
        "git push",
        "git push",
        "git push",
        "git push",
        " ",
        " ",
        "\n",
        "\n",
        ";",
        "&&",
        "|",
        "||",
        "&",
        "(",
        ")",
        "(",
        ")",
    ),
    *(
        "$(",
        ")",
        "`",
        "`",
        "'",
        "'",
        '"',
        '"',
        "\\",
        "\\\n",
        "#",
        "<<E\n",
        "\nE\n",
        "<<'E'\n",
        "<<-E\n",
        "\n\tE\n",
        "<<",
    ),
    *(
        "case x in ",
        "x)",
        ";;",
        " esac",
        "((",
        "))",
        "$((",
        "{ ",
        " ;}",
        "if ",
        "then ",
        "fi",
        "<(",
        "${x:-",
        "}",
        "x=",
    ),
    *("eval ", "true", "echo ", "$'", "<<<", "sh -c ", "1", "f() ", "! ", "while ", "do ", "done", "for i in ", "[[ "),
    *(" ]]", "-", "E", "case", "esac", "*)", "exec ", "command ", "time ", "coproc ", "function f "),
)


@pytest.mark.spec("P14")
def test_nothing_that_goes_on_unasked_pushes(tmp_path: Path) -> None:
    programs, place, pushed = tmp_path / "bin", tmp_path / "place", tmp_path / "pushed"
    programs.mkdir()
    place.mkdir()
    (programs / "git").write_text(f'#!/bin/sh\n[ "$1" = push ] && echo "$@" >> {pushed}\n')
    (programs / "git").chmod(0o755)
    (programs / "sh").symlink_to("/bin/sh")
    shells = [shell for shell in ("/bin/bash", "/bin/sh") if Path(shell).exists()]

    def runs(shell: str, line: str) -> bool:
        # A loop without an end: what it did until then counts.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [shell, "-c", line], env={"PATH": str(programs)}, cwd=place, timeout=2, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return pushed.exists()

    assert runs(shells[0], "git push"), "the trap works"
    pushed.unlink()
    chance, tried = random.Random(14), 0
    while tried < 150:
        line = "".join(chance.choice(PIECES) for _ in range(chance.randint(2, 14)))
        if "push" in line and judge(Intent("Bash", line), Policy()).word == "allow":
            tried += 1
            assert not any(runs(shell, line) for shell in shells), line
