"""The known word nearest to a mistyped one, for error texts."""

from collections.abc import Iterable

from gpusteward.core.messages import Message

DID_YOU_MEAN = Message("; did you mean {nearest!r}?", "；您是否想输入 {nearest!r}？")


def find_nearest(word: str, known: Iterable[str]) -> str:
    """Empty if no known word is near."""
    import difflib  # needed only for error texts

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.strip().lower(), by_lower, n=1)
    return by_lower[near[0]] if near else ""


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing if no known word is near."""
    return str(make_suggestion(word, known) or "")


def make_suggestion(word: str, known: Iterable[str]) -> Message | None:
    """The same in both languages, as a field of another message."""
    nearest = find_nearest(word, known)
    return DID_YOU_MEAN.fill(nearest=nearest) if nearest else None
