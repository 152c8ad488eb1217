"""GitHub and Discord as stand-ins on 127.0.0.1, and the people on them. What they do reaches the fleet as the platforms
would bring it, signed; what agents say is read where people would read it."""

import json
import urllib.request
from typing import Any

from tests.support import discord_api, github_api
from tests.support.discord_api import DiscordApi
from tests.support.github_api import GithubApi

REPOSITORY = github_api.REPOSITORY
FACTORY = discord_api.CHANNEL  # the channel where people talk to the manager
OFFICE = "1090000000000000009"  # and the one where they talk to the supervisor
ADA = "1080000000000000042"  # on Discord
ADA_ON_GITHUB = 583231


class Platforms:
    def __init__(self) -> None:
        self.github, self.discord = GithubApi(), DiscordApi()
        self.github.issues.clear()
        self.discord.channels.add(OFFICE)
        self.door = ""  # the fleet's, when it is there

    @property
    def settings(self) -> dict[str, str]:
        return {
            "LONGSHORE_GITHUB_API": self.github.url,
            "LONGSHORE_GITHUB_TOKEN": github_api.TOKEN,
            "LONGSHORE_GITHUB_SECRET": github_api.SECRET,
            "LONGSHORE_GITHUB_LOGIN": github_api.LOGIN,
            "LONGSHORE_DISCORD_API": self.discord.url,
            "LONGSHORE_DISCORD_TOKEN": discord_api.TOKEN,
            "LONGSHORE_DISCORD_PUBLIC_KEY": self.discord.public_key,
            "LONGSHORE_DISCORD_APPLICATION": discord_api.APPLICATION,
        }

    def close(self) -> None:
        self.github.close()
        self.discord.close()

    # --- GitHub ---

    def open_pull_request(self, number: int, title: str, author: str) -> None:
        self.github.issues.add(number)
        person = _account(author, 9_000_000 + number)
        pull = {
            "number": number,
            "title": title,
            "body": "",
            "user": person,
            "html_url": f"https://github.example/{REPOSITORY}/pull/{number}",
            "head": {"ref": f"change-{number}", "sha": f"{number:040x}"},
            "base": {"ref": "main", "sha": "0" * 40},
            "updated_at": "2026-01-31T09:00:00Z",
        }
        self._github("pull_request", {"action": "opened", "pull_request": pull, "sender": person})

    def comment(self, number: int, text: str) -> None:
        """Ada writes below a pull request."""
        ada = _account("ada", ADA_ON_GITHUB)
        comment = self.github.add_comment(text, login="ada", number=number)
        said = {"id": comment["id"], "body": text, "user": ada}
        event = {"action": "created", "issue": {"number": number}, "comment": said, "sender": ada}
        self._github("issue_comment", event)

    def answers_below(self, number: int) -> list[str]:
        """What agents have said below a pull request, in order, as people read it."""
        own = [one for one in self.github.comments if one["user"]["login"] == github_api.LOGIN]
        return [
            one["body"].split("<!-- longshore:")[0].strip()
            for one in own
            if one["issue_url"].endswith(f"/issues/{number}")
        ]

    def _github(self, event: str, what: dict[str, Any]) -> None:
        body = json.dumps(what | {"repository": {"full_name": REPOSITORY}}).encode()
        self._knock("/channels/github", self.github.signed(event, body), body)

    # --- Discord ---

    def say(self, channel: str, text: str) -> None:
        """Ada uses /ask in a channel."""
        options = [{"name": "text", "type": 3, "value": text}]
        command = {"name": "ask", "type": 1, "options": options}
        where = {"channel_id": channel, "channel": {"id": channel, "type": 0, "name": "somewhere"}}
        self._discord(self.discord.interaction(2, ADA, command, **where))

    def messages_in(self, channel: str) -> list[str]:
        return [str(one.said.get("content")) for one in list(self.discord.messages.values()) if one.channel == channel]

    def card(self) -> str | None:
        """The one that asks Ada for a decision, in her chat with the bot."""
        cards = [one for one in list(self.discord.messages.values()) if one.buttons]
        return str(cards[-1].said.get("content")) if cards else None

    def approve(self) -> None:
        self._discord(self.discord.pressed("Approve", ADA))

    def _discord(self, what: dict[str, Any]) -> None:
        body = json.dumps(what).encode()
        self._knock("/channels/discord", self.discord.signed(body), body)

    def _knock(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with urllib.request.urlopen(urllib.request.Request(self.door + path, body, headers), timeout=20) as answer:
            answer.read()


def _account(login: str, number: int) -> dict[str, Any]:
    return {"id": number, "login": login, "type": "User"}
