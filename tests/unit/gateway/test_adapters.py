"""`longshore adapters`: what a maker of drivers is told. What it signs is judged in `test_third_party_adapter`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import app


def maker(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["adapters", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.spec("P16")
def test_the_private_key_is_written_and_never_shown(tmp_path: Path) -> None:
    code, shown, _ = maker("keygen", str(tmp_path / "my.key"))
    assert code == 0
    secret = (tmp_path / "my.key").read_text().splitlines()[1]
    assert secret not in shown
    assert "public key:" in shown


@pytest.mark.spec("P16")
def test_mistakes_of_a_maker_get_a_sentence(tmp_path: Path) -> None:
    key = tmp_path / "my.key"
    maker("keygen", str(key))
    code, _, said = maker("keygen", str(key))
    assert (code, "a key is never written over" in said.replace("\n", " ")) == (1, True)
    code, _, said = maker("sign", str(tmp_path / "no.whl"), "--key", str(key))
    assert (code, "is not a wheel that can be read" in said.replace("\n", " ")) == (1, True)
    code, _, said = maker("sign", str(tmp_path / "no.whl"), "--key", str(tmp_path / "no.key"))
    assert (code, "cannot be read: No such file" in said.replace("\n", " ")) == (1, True)
