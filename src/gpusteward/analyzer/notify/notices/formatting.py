"""What others chose as a name, made harmless in a message (pure).

A pod may be called `@all`, `<at user_id="all">`, `[win](http://evil)` or carry a line break that forges a second
message. Only letters, digits and a few signs without meaning in any chat are kept; a dot before a letter is written
`[.]`, so that no client turns the name into a link.
"""

import re

LONGEST = 120
_KEPT = frozenset(" -._+")
_DOMAIN_DOT = re.compile(r"\.(?=[^\W\d_])")


def plain(text: str, *, longest: int = LONGEST) -> str:
    """A name as it may stand in a message."""
    return _DOMAIN_DOT.sub("[.]", bare(text, longest=longest))


def bare(text: str, *, longest: int = LONGEST) -> str:
    """A name as it may stand where nobody makes links of it: a label's value."""
    kept = "".join(letter if letter.isalnum() or letter in _KEPT else "?" for letter in text[: longest + 1])
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def line(text: str, *, longest: int = 300) -> str:
    """A sentence from elsewhere, such as an error: signs that make mentions, links or lines are taken out."""
    kept = "".join(letter if letter.isprintable() and letter not in _MARKS else " " for letter in text[: longest + 1])
    words = _DOMAIN_DOT.sub("[.]", " ".join(kept.replace("://", " ").split()))
    return words if len(words) <= longest else words[: longest - 1] + "…"


_MARKS = frozenset("@<>[]()*_`~#|\\!")
