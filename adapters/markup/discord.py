"""Markdown as Discord's Markdown."""


def to_discord(markdown: str) -> str:
    return markdown
