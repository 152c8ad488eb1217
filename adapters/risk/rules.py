"""Which program with which words does what somebody wants to be asked about: tables, and how they are read.

A rule is words in order: the program, then its subcommands (`|`: one of several). A word with a dash is an option that
stands anywhere, with a `!` one that must not; `+` is something more that is named. What follows an option before a
subcommand may be that option's value: both readings count."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from adapters.risk.files import is_manifest

Risk = Literal["low", "medium", "high"]

_TABLE: Final[tuple[tuple[str, Risk, str], ...]] = (
    (
        "merge",
        "high",
        """
        git push|send-pack|http-push|filter-branch|filter-repo|replace|update-ref
        git reflog expire|delete
        git branch -d|-D|--delete|-m|-M|--move|-f|--force
        git subtree push|merge|pull|add
        git svn dcommit
        gh pr merge
        gh repo delete|rename|archive|sync|edit
        gh api -X|--method|-f|-F|--field|--raw-field|--input
        glab mr merge
        hub merge|push
        hg push|merge|rebase|strip
        jj git push
        svn commit|ci|merge
        """,
    ),
    (
        "merge",
        "medium",
        """
        git merge|rebase|pull|cherry-pick|am|merge-file
        git tag + !-l|--list|-n|--contains|--points-at|--merged|--sort|-v|--verify
        git tag -d|--delete|-f|--force
        git commit --amend
        git reset --hard|--keep|--merge
        git checkout -B
        git switch -C|--force-create
        """,
    ),
    (
        "dependency",
        "medium",
        """
        npm|pnpm|yarn|bun add|install|i|in|update|up|upgrade|remove|uninstall|rm|un|link +
        yarn global add
        pip|pipx|pip-sync install|download|uninstall|inject|upgrade +
        uv add|remove +
        uv pip install|uninstall +
        uv tool install +
        poetry|pdm|rye|hatch add|remove|update
        pipenv install|uninstall +
        conda|mamba|micromamba install|create|update|remove
        cargo add|install|remove|rm|update
        go get|install +
        gem install|update +
        bundle add|update|remove
        composer require|update|remove
        deno add|install|remove +
        dotnet add|remove
        apt|apt-get|aptitude install|remove|purge|upgrade|dist-upgrade|full-upgrade
        dpkg -i|--install|-r|--remove
        yum|dnf|zypper|microdnf install|in|remove|update|upgrade
        pacman -S|-Sy|-Syu|-U|-R
        apk add|del|upgrade
        brew install|upgrade|uninstall|tap|reinstall
        snap|flatpak install|remove
        nix-env -i|-iA|--install
        """,
    ),
    (
        "secrets",
        "high",
        """
        printenv
        gh auth|secret|ssh-key|gpg-key
        git credential|credential-store|credential-cache
        ssh-add
        ssh-keygen
        gpg|gpg2 --export-secret-keys|--export-secret-subkeys|--decrypt|-d
        aws configure|secretsmanager|sso
        aws ssm get-parameter|get-parameters|get-parameters-by-path
        aws sts assume-role|get-session-token
        aws ecr get-login-password
        gcloud auth|secrets
        az login|keyvault
        az account get-access-token
        kubectl|oc get|describe secret|secrets
        heroku config
        vault
        op read|item|document|inject|signin
        pass show
        sops -d|--decrypt|decrypt|exec-env
        security find-generic-password|find-internet-password|dump-keychain
        secret-tool lookup
        npm token|login|adduser
        docker|podman login
        """,
    ),
    (
        "deploy",
        "high",
        """
        kubectl|oc apply|create|delete|patch|replace|scale|rollout|set|edit|drain|cordon|exec|cp|run|expose|autoscale
        helm install|upgrade|uninstall|delete|rollback|push
        terraform|tofu|terragrunt apply|destroy|import|taint|state
        pulumi up|update|destroy|import
        docker|podman|buildah|nerdctl push
        docker buildx build --push
        docker image|compose push
        docker stack deploy
        docker service update|create
        skopeo copy
        npm|pnpm|yarn|bun publish|unpublish|deprecate|dist-tag
        yarn npm publish
        twine upload
        uv|poetry|flit|hatch|pdm|rye publish
        cargo publish|yank
        gem push
        mvn deploy
        dotnet nuget push
        fly|flyctl deploy|launch|scale|secrets|apps|machine|volumes
        vercel
        netlify deploy
        heroku
        wrangler deploy|publish|secret|delete
        firebase deploy
        railway up|deploy
        serverless|sls deploy|remove
        sam|cdk deploy|delete|destroy
        eb deploy
        nomad job run|stop
        ansible
        ansible-playbook
        gh release create|delete|edit|upload
        gh workflow run|enable|disable
        gh run rerun
        glab release create|delete
        ssh
        scp
        sftp
        mosh
        gsutil cp|mv|rm|rsync|mb|rb|iam
        service
        supervisorctl
        crontab
        """,
    ),
)
_LOOKING: Final = {
    "systemctl": re.compile(r"status|show|cat|is-.*|list-.*|help"),
    "aws": re.compile(r"(get|list|describe|head|lookup|search|filter|batch-get)-.*|ls|help|wait|tail"),
    "gcloud": re.compile(r"list|describe|get-.*|read|info|version|help|get|get-value"),
    "az": re.compile(r"list|show|version|find|list-.*|show-.*"),
}
_ENTERED: Final = re.compile(r"(^|[:_./-])(deploy|publish|release|rollout|ship)([:_./-]|$)", re.IGNORECASE)
_RUNNERS: Final = {"make", "gmake", "just", "task", "rake", "invoke", "npm", "pnpm", "yarn", "bun", "nox", "gradle"}
_INSTALLERS: Final = {"pip", "pipx", "npm", "pnpm", "yarn", "bun", "uv", "cargo", "go"}
_WITH_FOLDER: Final = {"--prefix", "-C", "--cwd", "--dir"}
_READS_LISTS: Final = {"pip", "pipenv", "uv"}
_LIST: Final = re.compile(r"(?:--(r|c|e)(?:equirements?|onstraints?|ditable)(?:=|$)|-[a-zA-Z]*?([rce]))(.*)", re.DOTALL)
_THIS_FOLDER: Final = re.compile(r"\.{1,2}(/|$|\[)")
_HERE: Final = re.compile(r"[^/~:${][^:${]*")
_SECRET_KINDS: Final = re.compile(r"(^|,)secrets?[,./]|,secrets?$")
_NO_REFSPEC: Final = re.compile(r"[^:]*$|.*://|[\w.-]+@[\w.-]+:|.*:refs/remotes/")
_UNKNOWN: Final = re.compile(r"[$*?\[{]")


@dataclass(frozen=True)
class Rule:
    category: str
    risk: Risk
    program: str
    words: tuple[frozenset[str], ...]
    options: frozenset[str]
    without: frozenset[str]
    more: bool


def _rules() -> dict[str, list[Rule]]:
    rules: dict[str, list[Rule]] = {}
    for category, risk, table in _TABLE:
        for line in filter(None, map(str.strip, table.splitlines())):
            programs, *rest = line.split()
            words = tuple(frozenset(part.split("|")) for part in rest if part[0] not in "-+!")
            options, without = (
                frozenset(option for part in rest if part.startswith(sign) for option in part.lstrip("!").split("|"))
                for sign in ("-", "!")
            )
            for program in programs.split("|"):
                rule = Rule(category, risk, program, words, options, without, "+" in rest)
                rules.setdefault(program, []).append(rule)
    return rules


_RULES: Final = _rules()
MOST_OPTIONS: Final = 60  # before a subcommand
PROGRAMS: Final = frozenset(_RULES) | set(_LOOKING) | _RUNNERS | {"env", "set", "rsync"}


def subcommands(words: Sequence[str]) -> Iterator[int]:
    """Where a program's subcommand may stand among its words: what follows an option may be the option's value."""
    after_option = False
    for at, word in enumerate(words[:MOST_OPTIONS]):
        if word.startswith("-") and word != "-":
            after_option = not re.search(r"=|\{\}", word)
            continue
        yield at
        if not after_option:
            return
        after_option = False


def found_by_rule(program: str, words: Sequence[str]) -> tuple[str, Risk] | None:
    """The category and risk of a program with these words."""
    for rule in _RULES.get(program, ()):
        if _fits(rule, words):
            return rule.category, rule.risk
    if program == "env" and all(word.startswith("-") or "=" in word for word in words):
        return "secrets", "medium"
    if program in ("kubectl", "oc") and {"get", "describe"} & set(words) and any(map(_SECRET_KINDS.search, words)):
        return "secrets", "high"
    if program == "git" and (fetched := _after((frozenset({"fetch"}),), words)):
        _, *refspecs = [word for word in fetched if not word.startswith("-")] or [""]
        if not all(map(_NO_REFSPEC.match, refspecs)):  # It moves a branch, like a merge.
            return "merge", "medium"
    if program == "set" and not words:
        return "secrets", "medium"
    if program == "rsync" and any(re.match(r"(rsync://|[^/]+:)", word) for word in words if not word.startswith("-")):
        return "deploy", "high"
    if (looking := _LOOKING.get(program)) and words and not any(looking.fullmatch(word) for word in words[:6]):
        return "deploy", "high"
    if program in _RUNNERS and any(_ENTERED.search(word) for word in words[:6] if not word.startswith("-")):
        return "deploy", "medium"
    return None


def is_unclear(program: str, words: Sequence[str]) -> bool:
    """Whether something that only a running shell could know stands where a rule has a subcommand."""
    return any(_is_unclear(rule.words, words) for rule in _RULES.get(program, ()))


def _is_unclear(wanted: Sequence[frozenset[str]], words: Sequence[str]) -> bool:
    places = list(subcommands(words))
    if not wanted or not places:
        return False
    last = places[-1]
    sure = last == 0 or not words[last - 1].startswith("-")  # then those before it were values of options
    return any(_UNKNOWN.search(words[at]) for at in (places[-1:] if sure else places)) or any(
        words[at] in wanted[0] and _is_unclear(wanted[1:], words[at + 1 :]) for at in places
    )


def _fits(rule: Rule, words: Sequence[str]) -> bool:
    rest = _after(rule.words, words)
    if rest is None or (rule.options and not any(_is_option(word, rule.options) for word in words)):
        return False
    if any(_is_option(word, rule.without) for word in rest):
        return False
    return not rule.more or _names_something(rule.program, rest)


def _after(wanted: Sequence[frozenset[str]], words: Sequence[str]) -> Sequence[str] | None:
    """What follows the subcommands; None if they are not there."""
    if not wanted:
        return words
    for at in subcommands(words):
        if words[at] in wanted[0] and (rest := _after(wanted[1:], words[at + 1 :])) is not None:
            return rest
    return None


def _is_option(word: str, options: frozenset[str]) -> bool:
    if word.split("=", 1)[0] in options:
        return True
    letters = {option[1] for option in options if len(option) == 2}
    return bool(re.fullmatch(r"-[A-Za-z]+", word)) and any(letter in letters for letter in word[1:])


def _names_something(program: str, rest: Sequence[str]) -> bool:
    """Whether more is named than what is here already: this folder, or a list that is kept in it."""
    value_of = ""
    for word in rest:
        if value_of:
            if value_of not in _WITH_FOLDER and not _is_here(value_of, word):
                return True
            value_of = ""
        elif word in _WITH_FOLDER:
            value_of = word
        elif program in _READS_LISTS and (option := _LIST.fullmatch(word)):
            kind, value = option[1] or option[2], option[3]
            if value and not _is_here(kind, value):
                return True
            value_of = "" if value else kind
        elif "://" in word or not (word.startswith("-") or (program in _INSTALLERS and _THIS_FOLDER.match(word))):
            return True
    return False


def _is_here(kind: str, value: str) -> bool:
    """Whether the value of -r, -c or -e is of this project; a list (-r) only by a name that asks when it is written."""
    return bool(_HERE.fullmatch(value)) and (kind != "r" or is_manifest(value))
