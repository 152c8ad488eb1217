"""Markdown for property tests: any at all, and such as says what it looks like."""

from hypothesis import strategies as st

SIGNS = "*_~`#>-+|[]()!<&\\ \n:.1"
SNIPPETS = (
    *("# ", "- ", "1. ", "> ", "```py\n", "```\n", "**", "_", "~~", "`", "a", "🫖", " ", "\n", "\n\n", "  ", "\\"),
    *("[a](https://x.y)", "![b](https://x.y)", "| a | b |\n", "|---|--:|\n", "https://x.y/_a_", "<!here>"),
)
MARKDOWN = (
    st.text(st.one_of(st.sampled_from(SIGNS), st.characters(exclude_categories=[])), max_size=120)
    | st.lists(st.sampled_from(SNIPPETS), max_size=40).map("".join)
)  # fmt: skip
# Words as people write them: what could be markup stands where it is none.
WORDS = (
    *("tea", "snake_case_name", "two", "2", "*", "<", "&", "&amp;", "a<b>c", "5*", "„quotes“", "🫖", "C#", "50%", "x_"),
    *("~5", "<@U123>", "<!channel>", "R&D", "(so)", "e.g.", "a|b", "#1", "it's", "-3", "1.5", "@everyone", "[x]: y"),
)
WORD = st.sampled_from(WORDS)
PLAIN = st.lists(st.lists(WORD, min_size=1, max_size=6).map(" ".join), min_size=1, max_size=5).map(
    lambda lines: "tea " + "\ntea ".join(lines)
)
