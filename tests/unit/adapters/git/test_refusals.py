"""What git and servers print when a push fails, as GitHub and OpenSSH word it, and what people are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.git.refusals import one_line, refusal

pytestmark = pytest.mark.spec("O1")

TIP = "a" * 40


def told(stdout: str, stderr: str, branch: str = "fix", *, authorised: bool = True) -> tuple[str, bool]:
    error = refusal(stdout, stderr, "origin", branch, hide=lambda text: text, authorised=authorised)
    return str(error), error.retryable


@pytest.mark.parametrize(
    ("said", "words", "retryable"),
    [
        ("[rejected] (fetch first)", "somebody else has written to 'fix' of 'origin'", False),
        ("[rejected] (non-fast-forward)", "somebody else has written to 'fix' of 'origin'", False),
        ("[remote rejected] (protected branch hook declined)", "is protected (protected branch hook declined)", False),
        ("[remote rejected] (push declined due to repository rule violations)", "is protected (push declined", False),
        ("[remote rejected] (pre-receive hook declined)", "may not be written: pre-receive hook declined", False),
        ("[remote rejected] (branch is currently checked out)", "may not be written: branch is currently", False),
        ("[remote rejected] (cannot lock ref 'refs/heads/fix': is at 1 but expected 2)", "just now (cannot lock", True),
        ("[remote rejected] (Internal Server Error)", "just now (Internal", True),
        ("[remote failure] (remote failed to report status)", "just now (remote failed", True),
        ("[no match]", "may not be written: no match", False),
    ],
)
def test_the_line_about_the_branch_decides(said: str, words: str, retryable: bool) -> None:
    stdout = f"To https://github.com/octo/hello\n!\t{TIP}^{{commit}}:refs/heads/fix\t{said}\nDone\n"
    said_so, may_pass = told(stdout, "error: failed to push some refs to 'https://github.com/octo/hello'")
    assert words in said_so
    assert may_pass == retryable


@pytest.mark.parametrize(
    ("stderr", "words", "retryable"),
    [
        (
            "remote: Invalid username or token.\nfatal: Authentication failed for 'https://github.com/o/r/'",
            "token",
            False,
        ),
        (
            "fatal: unable to access 'https://h/o/r/': The requested URL returned error: 403",
            "not take the token",
            False,
        ),
        (
            "remote: Repository not found.\nfatal: repository 'https://github.com/o/r/' not found",
            "no repository",
            False,
        ),
        ("fatal: '/srv/x.git' does not appear to be a git repository", "no repository at its address", False),
        ("fatal: unable to access 'https://h/o/tls/': Could not resolve host: h", "cannot be reached", True),
        ("fatal: unable to access 'https://h/': Failed to connect to h port 443: timed out", "cannot be reached", True),
        ("error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502", "cannot be reached", True),
        ("ssh: connect to host h port 22: Connection refused\r\nfatal: Could not read", "cannot be reached", True),
        ("git@h: Permission denied (publickey).\r\nfatal: Could not read from remote", "check the ssh key", False),
        ("Host key verification failed.\r\nfatal: Could not read from remote", "connect to it by hand", False),
        ("fatal: unable to access 'https://h/': SSL certificate problem: self-signed", "certificate", False),
        ("fatal: something new", "git could not push to it (fatal: something new)", False),
        ("", "it did not say why", False),
    ],
)
def test_without_one_what_git_died_of_is_told(stderr: str, words: str, retryable: bool) -> None:
    said, may_pass = told("", stderr)
    assert words in said
    assert may_pass == retryable


def test_what_the_server_says_decides_nothing() -> None:
    stderr = "remote: Authentication failed\nfatal: unable to access '': The requested URL returned error: 502"
    assert told("", stderr)[1] is True
    other = f"!\t{TIP}:refs/heads/other\t[rejected] (fetch first)\n"
    assert "somebody else" not in told(other, "fatal: x")[0]


def test_who_has_shown_no_token_is_told_of_it() -> None:
    assert "set LONGSHORE_GITHUB_TOKEN" in told("", "fatal: Authentication failed for ''", authorised=False)[0]


def test_secrets_are_taken_out_before_the_text_is_cut() -> None:
    said = "x" * 290 + "secret"
    printed = [
        (f"!\t{TIP}:refs/heads/fix\t[remote rejected] ({said})\n", ""),
        ("", f"hung up {said[8:]}"),
        ("", said),
    ]
    for stdout, stderr in printed:
        error = refusal(stdout, stderr, "origin", "fix", hide=lambda text: text.replace("secret", "?"))
        assert "secret"[:4] not in str(error)
        assert "x?" in str(error)


@given(st.text(max_size=2000))
def test_what_is_shown_is_one_short_line(text: str) -> None:
    shown = one_line(text)
    assert len(shown) <= 300
    assert shown.isprintable()


@given(st.text(max_size=500), st.text(max_size=500))
def test_whatever_is_printed_there_is_an_error_in_words(stdout: str, stderr: str) -> None:
    assert "origin" in told(stdout, stderr)[0]
