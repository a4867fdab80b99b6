"""The two languages of what people read."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

from gpusteward.core.sentences import fill

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Said(NamedTuple):
    """One thing, said in both languages."""

    en: str
    zh: str

    def to(self, language: Language, **facts: object) -> str:
        """In one of them, facts put in where the text has a {name} for them. A fact may be said in both too."""
        text = self.zh if language == "zh" else self.en
        if not facts:
            return text
        return fill(text, {name: fact.to(language) if isinstance(fact, Said) else fact for name, fact in facts.items()})


def find_language(given: str | None, environ: Mapping[str, str]) -> Language:
    """As asked for, else as the environment speaks: the first of these that is set counts, as POSIX has it."""
    if given:
        return cast("Language", given)
    spoken = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if spoken.lower().startswith("zh") else "en"
