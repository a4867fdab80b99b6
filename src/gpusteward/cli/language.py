"""Choice of the output language."""

from collections.abc import Mapping
from typing import cast

from gpusteward.core.messages import Language


def find_language(given: str | None, environ: Mapping[str, str]) -> Language:
    """The flag, else the first of LC_ALL, LC_MESSAGES and LANG that is set, as POSIX orders them."""
    if given:
        return cast("Language", given)
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"
