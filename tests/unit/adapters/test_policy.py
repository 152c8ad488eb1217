"""What an operator may write into a policy, and what they are told when it does not read."""

from typing import Any

import pytest

from adapters.errors import AdapterError
from adapters.policy import DEFAULT_COMMANDS, Policy, PolicyError, parse_policy
from adapters.redaction import Redactor
from adapters.registry import Registry
from gateway.cli.group_settings import parse_policy_file
from workers.operations import group_settings
from workers.operations.group_settings import Changes, GroupSettings, GroupSettingsError


@pytest.mark.spec("T5", "T6")
def test_what_is_not_said_is_the_default() -> None:
    policy = parse_policy({})
    assert policy.commands == DEFAULT_COMMANDS
    assert (policy.hosts, policy.agents, policy.oversees, policy.mcp_servers) == ((), (), {}, {})
    assert (policy.shell_allow, policy.shell_deny, policy.obey_repository) == ((), (), False)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"comands": ["ls"]}, "policy.comands: there is no such field; a policy has commands, hosts"),
        ({"commands": ["/bin/ls"]}, "policy.commands: '/bin/ls' is not the plain name of a program, like git"),
        ({"commands": ["ls -la"]}, "'ls -la' is not the plain name"),
        ({"commands": ["-c"]}, "'-c' is not the plain name"),
        ({"approve": "write_file"}, "policy.approve: this must be a list, like [a, b]"),
        ({"hosts": ["127.0.0.1"]}, "policy.hosts: '127.0.0.1' is an address; hosts are opened by name"),
        ({"hosts": ["a b"]}, "policy.hosts.0: 'a b' is not a host's name, like example.org"),
        ({"fetch": ["http://x"]}, "policy.fetch.0: 'http://x' is not a host's name"),
        ({"destinations": {"a": {"channel_type": "fake"}}}, "policy.destinations.a.platform_id: this is missing"),
        ({"destinations": []}, "policy.destinations: this must be a mapping"),
        ({"oversees": {"a": "all"}}, "policy.oversees.a: Input should be 'messages' or 'steps'"),
        ({"mcp_servers": {"w": {"command": "x", "env": {"A": "$HOME"}}}}, "only variables named LONGSHORE_SECRET_"),
        ({"mcp_servers": {"w": {"command": "x", "env": {"A B": "x"}}}}, "'A B' is not the name of a variable"),
        ({"shell_deny": "git push"}, "policy.shell_deny: this must be a list, like [a, b]"),
        ({"shell_deny": ["/usr/bin/git push*"]}, "name the program without its folder, like git push*"),
        ({"shell_allow": ["git  status"]}, "'git  status' has spaces that no command has"),
        ({"shell_allow": [" "]}, "' ' has spaces that no command has"),
        ({"shell_allow": ["ls && git push"]}, "is more than one command; each part of a line is looked at by itself"),
        ({"approve_for": ["merges"]}, "policy.approve_for.0: 'merges' is none of merge, dependency, secrets, deploy"),
        ({"approve_for": "merge"}, "policy.approve_for: this must be a list"),
        ({"obey_repository": "maybe"}, "policy.obey_repository: this must be true or false"),
        ({"large_diff": 7}, "policy.large_diff: this must be a mapping"),
        ({"large_diff": {"files": "many"}}, "policy.large_diff.files: this must be a whole number"),
        ({"large_diff": {"files": 0}}, "policy.large_diff.files: Input should be greater than or equal to 1"),
        ({"large_diff": {"bytes": 1}}, "policy.large_diff.bytes: there is no such field"),
        ({"mcp_servers": {"w": {"command": "x", "hosts": ["10.0.0.1"]}}}, "'10.0.0.1' is an address"),
    ],
)
def test_a_mistake_is_told_in_words(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy({"policy": given})
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [b", "does not read as YAML"),
        ("just words", "must hold a mapping"),
        ("approve: [no_such_tool]", "there is no tool 'no_such_tool'; see: longshore tools"),
        ("mcp_servers: {w: {command: npx, args: [weather]}}", "is not one exact version"),
        ("mcp_servers: {w: {command: sh, args: [-c, x]}}", "a shell (sh) could run anything"),
        (
            "mcp_servers: {w: {command: x, env: {KEY: hunter2-hunter2}}}",
            "looks like a secret, and policies are kept in",
        ),
        ("destinations: {a: {channel_type: pigeon, platform_id: x}}", "there is no channel 'pigeon'"),
    ],
)
@pytest.mark.spec("T7", "F9")
def test_a_file_is_checked_before_it_is_kept(monkeypatch: pytest.MonkeyPatch, text: str, complaint: str) -> None:
    monkeypatch.setattr(group_settings, "process_redactor", lambda: Redactor(["hunter2-hunter2"]))
    with pytest.raises((GroupSettingsError, AdapterError)) as error:
        Changes(policy=parse_policy_file(text)).applied(GroupSettings("demo"), Registry(), "scripted")
    assert complaint in str(error.value)


@pytest.mark.spec("T7")
def test_a_good_one_is_kept_and_can_be_taken_away() -> None:
    good = "commands: [git]\nmcp_servers: {w: {command: npx, args: [-y, w@1.2.3], env: {K: $LONGSHORE_SECRET_K}}}"
    kept = Changes(policy=parse_policy_file(good)).applied(GroupSettings("demo"), Registry(), "scripted")
    assert Policy.model_validate(kept.policy).commands == ("git",)
    assert Changes(policy={}).applied(kept, Registry(), "scripted").policy == {}
