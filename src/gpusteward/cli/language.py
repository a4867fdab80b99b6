"""Choice of the output language."""

from collections.abc import Mapping, Sequence

from gpusteward.core.messages import LANGUAGES, Language

FLAG = "--language"


def find_language(given: str | None, environ: Mapping[str, str]) -> Language:
    """The value of the flag, else the first of LC_ALL, LC_MESSAGES and LANG that is set, in the order of POSIX."""
    if given in LANGUAGES:
        return given
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def find_error_language(arguments: Sequence[str], environ: Mapping[str, str]) -> Language:
    """For errors that may occur before the flags are parsed."""
    given = None
    for word, following in zip(arguments, (*arguments[1:], ""), strict=False):
        if word == FLAG:
            given = following
        elif word.startswith(f"{FLAG}="):
            given = word.partition("=")[2]
    return find_language(given, environ)
