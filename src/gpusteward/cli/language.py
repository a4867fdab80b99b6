"""Choice of the output language."""

from collections.abc import Mapping

from gpusteward.core.messages import LANGUAGES, Language

FLAG = "--language"


def find_language(given: str | None, environ: Mapping[str, str]) -> Language:
    """The value of the flag, else the first of LC_ALL, LC_MESSAGES and LANG that is set, in the order of POSIX."""
    if given in LANGUAGES:
        return given
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"
