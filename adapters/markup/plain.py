"""Markdown as plain text for people."""


def to_plain(markdown: str) -> str:
    return markdown
