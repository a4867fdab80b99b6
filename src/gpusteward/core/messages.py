"""Texts in two languages, with fields filled in.

In English a word can follow its number: `{gpus} {gpus:|GPU|GPUs}` is `1 GPU` or `8 GPUs`. The number may be a text,
such as `0.5`.
"""

import string
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Message(NamedTuple):
    """One text in English and Chinese; both have the same fields."""

    en: str
    zh: str

    def text(self, language: Language, **fields: object) -> str:
        """The text in one language.

        A field may have two languages too: a Message or an error. Raises KeyError for a missing field.
        """
        text = self.zh if language == "zh" else self.en
        if not fields:
            return text
        values = {name: _translate(value, language) for name, value in fields.items()}
        return format_text(text, values)

    def fill(self, **fields: object) -> "Message":
        """The message with its fields filled in, in both languages."""
        return Message(self.text("en", **fields), self.text("zh", **fields))

    def __str__(self) -> str:
        return self.en


def same_text(text: str) -> Message:
    """A name, or the text of another program: it has no language."""
    return Message(text, text)


def _translate(value: object, language: Language) -> object:
    translate = getattr(value, "text", None)
    return translate(language) if callable(translate) else value


class _PluralFormatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if not format_spec.startswith("|"):
            return str(super().format_field(value, format_spec))
        one, many = format_spec[1:].split("|")
        is_one = value == "1" if isinstance(value, str) else 0.5 < value < 1.5  # 0.7 minutes is printed as 1
        return one if is_one else many


_FORMATTER = _PluralFormatter()


def format_text(text: str, fields: Mapping[str, Any]) -> str:
    """Braces inside a field value are never interpreted. Raises KeyError for a missing field."""
    return _FORMATTER.vformat(text, (), fields)
