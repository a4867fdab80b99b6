"""Characters that a terminal, a browser or a log viewer does not show as they are.

Control characters move the cursor or end a line; others hide text or reverse its direction. Names of pods, processes
and labels come from outside and may contain them.
"""

import re

CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def replace_controls(text: str) -> str:
    """With a replacement character for each of them."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_controls(text: str, *, keep: str = "") -> str:
    """With the escape sequence of JSON for each of them, except those of `keep`."""
    return CONTROLS.sub(lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    """`\\u202e`; two of them for a character beyond 16 bits."""
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
