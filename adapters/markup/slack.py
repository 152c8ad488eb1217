"""Markdown as Slack's mrkdwn."""


def to_mrkdwn(markdown: str) -> str:
    return markdown
