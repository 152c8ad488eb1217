"""Emoji by themselves or by name, as agents give them. What a platform has of them, and what it calls them, is its
driver's to know."""

import re
from typing import Final

# The first name is Slack's; most others are GitHub's or Unicode's.
NAMES: Final = {
    emoji: tuple(names.split())
    for emoji, names in {
        "👍": "thumbsup thumbs_up +1",
        "👎": "thumbsdown thumbs_down -1",
        "👏": "clap clapping_hands",
        "👋": "wave waving_hand",
        "👌": "ok_hand",
        "🙏": "pray folded_hands",
        "🙌": "raised_hands raising_hands",
        "👀": "eyes",
        "❤": "heart red_heart",
        "🔥": "fire",
        "🎉": "tada party_popper hooray",
        "🚀": "rocket",
        "💯": "100 hundred_points",
        "💡": "bulb light_bulb",
        "✅": "white_check_mark check check_mark_button",
        "✔": "heavy_check_mark check_mark",
        "❌": "x cross_mark",
        "❓": "question question_mark",
        "❗": "exclamation exclamation_mark",
        "⚠": "warning",
        "⏳": "hourglass_flowing_sand hourglass",
        "🤔": "thinking_face thinking",
        "😀": "grinning grinning_face",
        "😄": "smile laugh",
        "😆": "laughing",
        "😂": "joy",
        "😊": "blush",
        "😢": "cry crying_face",
        "😮": "open_mouth",
        "😕": "confused confused_face",
    }.items()
}
_BY_NAME: Final = {name: emoji for emoji, names in NAMES.items() for name in names}
_SHADES: Final = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")  # of one emoji: coloured, skin tones


def emoji_of(given: str) -> str:
    """The emoji that is meant, plain: without colours and skin tones. What is none that is known stays what it is."""
    word = _SHADES.sub("", given).strip().strip(":")
    return _BY_NAME.get(word.lower(), word)
