"""A person on each platform, through real processes: she becomes an admin by a code, asks the agent for something it
may do only if she says so, says so, and reads the answer. One fleet serves all platforms at once, as in life."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import discord_api, github_api, mail_server, slack_api, telegram_api
from tests.support.discord_api import DiscordApi
from tests.support.github_api import GithubApi
from tests.support.mail_server import MailServer
from tests.support.platform_users import (
    Gate,
    NotAskedError,
    OnDiscord,
    OnEmail,
    OnGithub,
    OnSlack,
    OnTelegram,
    OnTheWeb,
    OnWebhook,
    Person,
)
from tests.support.processes import Operator, procfile
from tests.support.servers import Valkey, free_port
from tests.support.slack_api import SlackServer
from tests.support.telegram_api import TelegramApi
from tests.support.webhook_server import WebhookServer

# Each is proven on its own wire in tests/contract every time.
OTHER_PLATFORMS = ("slack", "discord", "github", "email", "webhook")
pytestmark = pytest.mark.xdist_group("platforms")

WEBHOOK_SECRET = "a secret of the CRM"
SCRIPT = """\
- when: release
  play:
    - tool: clock
    - answer: "Released at **{result}**."
- play:
    - answer: "You said: {texts}"
"""
BOSS = """\
- when: Released
  play:
    - answer: "helper: {text}"
- play:
    - tool: send_to_agent
      with: {agentGroupId: helper, text: "please release"}
"""


class PlatformFleet:
    """All platforms, and the fleet that serves them."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.gate = Gate(free_port())
        self.telegram, self.slack, self.discord = TelegramApi(), SlackServer(), DiscordApi()
        self.github, self.mail, self.crm = GithubApi(), MailServer(), WebhookServer(WEBHOOK_SECRET)
        operator.env |= {
            "LONGSHORE_TELEGRAM_API": self.telegram.url,
            "LONGSHORE_TELEGRAM_TOKEN": telegram_api.TOKEN,
            "LONGSHORE_SLACK_API": self.slack.url,
            "LONGSHORE_SLACK_TOKEN": slack_api.TOKEN,
            "LONGSHORE_SLACK_SIGNING_SECRET": slack_api.SECRET,
            "LONGSHORE_DISCORD_API": self.discord.url,
            "LONGSHORE_DISCORD_TOKEN": discord_api.TOKEN,
            "LONGSHORE_DISCORD_PUBLIC_KEY": self.discord.public_key,
            "LONGSHORE_DISCORD_APPLICATION": discord_api.APPLICATION,
            "LONGSHORE_GITHUB_API": self.github.url,
            "LONGSHORE_GITHUB_TOKEN": github_api.TOKEN,
            "LONGSHORE_GITHUB_SECRET": github_api.SECRET,
            "LONGSHORE_GITHUB_LOGIN": github_api.LOGIN,
            "LONGSHORE_EMAIL_ADDRESS": mail_server.ADDRESS,
            "LONGSHORE_EMAIL_IMAP": self.mail.imap_url,
            "LONGSHORE_EMAIL_SMTP": self.mail.smtp_url,
            "LONGSHORE_EMAIL_AUTHSERV": "mx.longshore.example",
            "LONGSHORE_EMAIL_POLL_SECONDS": "1",
            "LONGSHORE_WEBHOOKS": json.dumps({"crm": {"url": self.crm.url, "secret": WEBHOOK_SECRET}}),
        }
        commands = procfile()
        operator.start(f"{commands['gateway']} --port {self.gate.url.rsplit(':', 1)[1]}", "gateway", ready=False)
        operator.start(commands["listen"], "listen", ready=False)
        operator.start("celery -A workers.app beat", "beat", ready=False)
        operator.worker("messages,upkeep,delivery,agent.scripted")
        alive = "SELECT count(*) FROM processes WHERE kind IN ('gateway', 'listen')"
        operator.wait_for(lambda: operator.value(alive) == 2, "gateway and listener to be ready", 40)

    def close(self) -> None:
        self.operator.close()
        for platform in (self.telegram, self.slack, self.discord, self.github, self.mail, self.crm):
            platform.close()

    def person(self, platform: str) -> Person:
        match platform:
            case "telegram":
                return OnTelegram(self.telegram)
            case "slack":
                return OnSlack(self.slack, self.gate)
            case "discord":
                return OnDiscord(self.discord, self.gate)
            case "github":
                return OnGithub(self.github, self.gate, OnTelegram(self.telegram))
            case "email":
                return OnEmail(self.mail)
            case "webhook":
                return OnWebhook(self.crm, self.gate, WEBHOOK_SECRET)
            case _:
                return self.on_the_web("ada", "web")

    def on_the_web(self, name: str, agent: str) -> OnTheWeb:
        made = self.operator.cli("token", "add", name, "--agent", agent, "--json").stdout
        return OnTheWeb(self.gate, name, json.loads(made)["token"])

    def add_agent(self, name: str, script: str, policy: str) -> None:
        self.operator.add_group(name, script)
        (self.operator.folder / "policy.yaml").write_text(policy)
        self.operator.cli("groups", "set", name, "--policy", "policy.yaml")


@pytest.fixture(scope="module")
def platform_fleet(
    make_postgres: Callable[[], Iterator[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformFleet]:
    folder: Path = tmp_path_factory.mktemp("platforms")
    broker = Valkey(folder / "valkey")
    broker.start()
    databases = make_postgres()
    platform_fleet = PlatformFleet(Operator(folder, next(databases), broker))
    yield platform_fleet
    platform_fleet.close()
    broker.stop()
    next(databases, None)


@pytest.mark.spec("C1", "C2", "C4", "C6", "C8", "M12")
@pytest.mark.parametrize(
    "platform",
    ["telegram", "web", *(pytest.param(name, marks=pytest.mark.long) for name in OTHER_PLATFORMS)],
)
def test_a_person_asks_approves_and_is_answered(platform_fleet: PlatformFleet, platform: str) -> None:
    operator, agent = platform_fleet.operator, platform
    platform_fleet.add_agent(agent, SCRIPT, "approve: [clock]\n")
    ada = platform_fleet.person(platform)
    channel, chat = ada.place
    operator.cli("wire", agent, channel, chat)

    def reads(words: str) -> bool:
        return any(re.search(words, text) for text in ada.reads())

    if platform in ("telegram", "slack", "discord", "email"):
        invited = operator.cli("people", "invite", "--role", "admin", "--agent", agent).stdout
        found = re.search(r"LS-[A-Z0-9-]+", invited)
        assert found is not None, invited
        ada.say(found[0])
        operator.wait_for(lambda: reads("admin"), f"the code to be taken on {platform}")
    else:  # no direct chats there, or she is known by other means
        decides = OnTelegram.user if platform == "github" else ada.user
        for user, role in {ada.user: "member", decides: "admin"}.items():
            operator.cli("people", "add", user, "--role", role, "--agent", agent)
    ada.say("please release")
    operator.wait_for(lambda: _approved(ada, ada), f"the approval on {platform}")
    operator.wait_for(lambda: reads("Released at"), f"the answer on {platform}")
    assert len([text for text in ada.reads() if "Released at" in text]) == 1
    decided = operator.rows(
        "SELECT a.status, a.decided_by FROM approvals a JOIN messages_in m ON m.session_id = a.session_id "
        "WHERE m.channel_type = %s GROUP BY a.id",
        channel,
    )
    assert decided == [("used", OnTelegram.user if platform == "github" else ada.user)]


@pytest.mark.spec("C2", "C6", "M14")
def test_an_agent_asks_another_whose_approval_a_person_gives_elsewhere(platform_fleet: PlatformFleet) -> None:
    """The `agent` channel: its platform is the fleet itself."""
    operator, admin = platform_fleet.operator, OnTelegram(platform_fleet.telegram)
    platform_fleet.add_agent("helper", SCRIPT, "approve: [clock]\n")
    platform_fleet.add_agent("boss", BOSS, "agents: [helper]\n")
    operator.cli("people", "add", admin.user, "--role", "admin", "--agent", "helper")
    bob = platform_fleet.on_the_web("bob", "boss")
    bob.say("get it done")
    operator.wait_for(lambda: _approved(admin, bob), "the approval for helper")
    operator.wait_for(lambda: any("helper: Released at" in text for text in bob.reads()), "the answer of boss")
    assert len([text for text in bob.reads() if "Released at" in text]) == 1


def _approved(admin: Person, waiting: Person) -> bool:
    try:
        admin.approve()
    except NotAskedError:
        assert not any("Released at" in text for text in waiting.reads())
        return False
    return True
