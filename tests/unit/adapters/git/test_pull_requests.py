"""Which repository of which server the address of a remote means."""

import pytest

from adapters.channels.github.rest import server_of
from adapters.git.pull_requests import GitHubPulls, repository_of

pytestmark = pytest.mark.spec("O1")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://github.com/octo/hello.world.git", ("github.com", "octo/hello.world")),
        ("https://GitHub.com/octo/hello", ("github.com", "octo/hello")),
        ("https://github.com:443/octo/hello/", ("github.com", "octo/hello")),
        ("https://ada:word@github.com/octo/hello.git", ("github.com", "octo/hello")),
        ("http://127.0.0.1:8080/octo/hello.git", ("127.0.0.1:8080", "octo/hello")),
        ("https://ghe.example.com:8443/octo/hello.git", ("ghe.example.com:8443", "octo/hello")),
        ("ssh://git@github.com/octo/hello.git", ("github.com", "octo/hello")),
        ("ssh://git@ghe.example.com:2222/octo/hello.git", ("ghe.example.com", "octo/hello")),
        ("ssh://git@ssh.github.com:443/octo/hello.git", ("github.com", "octo/hello")),
        ("git@github.com:octo/hello.git", ("github.com", "octo/hello")),
        ("github.com:/octo/hello", ("github.com", "octo/hello")),
        ("/srv/git/hello.git", None),
        ("../hello.git", None),
        ("./a:b/c", None),
        ("file:///octo/hello.git", None),
        ("git://github.com/octo/hello.git", None),
        ("ext::sh -c octo/hello", None),
        ("https://github.com/hello.git", None),
        ("https://github.com/octo/hello/extra", None),
        ("https://github.com/octo/..", None),
        ("https://github.com/octo/hello?x", ("github.com", "octo/hello")),
        ("https:///octo/hello", None),
        ("https://[::1/octo/hello", None),
        ("", None),
    ],
)
def test_the_address_of_a_remote_names_a_repository(url: str, found: tuple[str, str] | None) -> None:
    assert repository_of(url) == found


@pytest.mark.parametrize(
    ("api", "server"),
    [
        ("https://api.github.com", "https://github.com"),
        ("https://api.octo.ghe.com", "https://octo.ghe.com"),
        ("https://ghe.example.com/api/v3", "https://ghe.example.com"),
        ("https://api.example.com", "https://api.example.com"),
        ("http://127.0.0.1:8080/api/v3", "http://127.0.0.1:8080"),
    ],
)
def test_the_server_of_an_api_is_where_git_asks(api: str, server: str) -> None:
    assert server_of(api) == server


@pytest.mark.parametrize(
    ("api", "url", "found"),
    [
        ("https://api.github.com", "git@github.com:octo/hello.git", "octo/hello"),
        ("https://api.github.com", "https://github.com/octo/hello", "octo/hello"),
        ("https://api.github.com", "https://gitlab.com/octo/hello", None),
        ("https://api.github.com", "https://github.com.evil.example/octo/hello", None),
        ("https://ghe.example.com:8443/api/v3", "ssh://git@ghe.example.com:2222/octo/hello", "octo/hello"),
        ("https://ghe.example.com:8443/api/v3", "https://ghe.example.com:8443/octo/hello", "octo/hello"),
        ("https://ghe.example.com:8443/api/v3", "https://ghe.example.com/octo/hello", None),
        ("https://ghe.example.com/api/v3", "/srv/git/hello", None),
    ],
)
def test_a_remote_elsewhere_has_no_pull_requests_here(api: str, url: str, found: str | None) -> None:
    assert GitHubPulls(api, "token").repository_at(url) == found
