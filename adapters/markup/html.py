"""Markdown as HTML for mail."""


def to_html(markdown: str) -> str:
    return markdown
