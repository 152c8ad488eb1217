"""To which addresses the token of a GitHub server is shown."""

import pytest

from adapters.git.pushing import _with_token

pytestmark = pytest.mark.spec("O1")

GITHUB, OWN, LOCAL = "https://api.github.com", "https://ghe.example.com:8443/api/v3", "http://127.0.0.1:8080/api/v3"


@pytest.mark.parametrize(
    ("api", "address", "key"),
    [
        (GITHUB, "https://github.com/octo/hello.git", "http.https://github.com:443/octo/hello.git.extraHeader"),
        (GITHUB, "https://GitHub.com:443/octo/hello", "http.https://github.com:443/octo/hello.extraHeader"),
        (GITHUB, "https://ada:word@github.com/octo/hello", "http.https://github.com:443/octo/hello.extraHeader"),
        (OWN, "https://ghe.example.com:8443/o/r", "http.https://ghe.example.com:8443/o/r.extraHeader"),
        (LOCAL, "http://127.0.0.1:8080/o/r", "http.http://127.0.0.1:8080/o/r.extraHeader"),
        ("http://[::1]:8080/api/v3", "http://[::1]:8080/o/r", "http.http://[::1]:8080/o/r.extraHeader"),
        ("https://api.octo.ghe.com", "https://octo.ghe.com/o/r", "http.https://octo.ghe.com:443/o/r.extraHeader"),
    ],
)
def test_a_remote_on_the_tokens_server_is_shown_it(api: str, address: str, key: str) -> None:
    settings = _with_token(address, "the-token", api)
    assert settings["GIT_CONFIG_KEY_1"] == key
    assert settings["GIT_CONFIG_VALUE_1"].startswith("Authorization: Basic ")
    assert "the-token" not in " ".join(settings.values())


@pytest.mark.parametrize(
    ("api", "address"),
    [
        (GITHUB, "http://github.com/octo/hello"),
        (GITHUB, "https://github.com:8443/octo/hello"),
        (GITHUB, "https://api.github.com/octo/hello"),
        (GITHUB, "https://github.com.evil.example/octo/hello"),
        (GITHUB, "https://github.com@evil.example/octo/hello"),
        (GITHUB, "https://evil.example\\@github.com/octo/hello"),
        (GITHUB, "https://evil.example/https://github.com/octo/hello"),
        (GITHUB, "https://github.com /octo/hello"),
        (GITHUB, "https://github.com:port/octo/hello"),
        (GITHUB, "ssh://git@github.com/octo/hello"),
        (GITHUB, "git@github.com:octo/hello"),
        (GITHUB, "/srv/git/hello"),
        (GITHUB, ""),
        (OWN, "https://ghe.example.com/o/r"),
        (OWN, "https://github.com/o/r"),
        (LOCAL, "http://127.0.0.1:8081/o/r"),
        (LOCAL, "https://127.0.0.1:8080/o/r"),
        ("http://ghe.example.com/api/v3", "http://ghe.example.com/o/r"),
    ],
)
def test_no_other_remote_is_shown_it(api: str, address: str) -> None:
    assert _with_token(address, "the-token", api) == {}


def test_without_a_token_there_is_nothing_to_show() -> None:
    assert _with_token("https://github.com/octo/hello", None, GITHUB) == {}
    assert _with_token("https://github.com/octo/hello", "", GITHUB) == {}
