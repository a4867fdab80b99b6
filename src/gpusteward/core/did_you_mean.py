"""The known word nearest to a mistyped one, for error texts that mend."""

from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing when no known word is near."""
    import difflib  # only ever needed on the way out

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.strip().lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""
