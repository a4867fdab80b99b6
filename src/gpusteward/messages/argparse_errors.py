"""Errors that argparse writes in English."""

import re
from collections.abc import Sequence

from gpusteward.core.messages import Message
from gpusteward.messages import cli as messages

ARGPARSE_ERRORS: Sequence[tuple[str, Message]] = (
    (r"invalid choice: (?P<value>.+) \(choose from (?P<choices>.+)\)", messages.INVALID_CHOICE),
    (r"expected (?:one|at least one) argument", messages.MISSING_VALUE),
    (r"expected at most one argument", messages.TOO_MANY_VALUES),
    (r"ignored explicit argument (?P<value>.+)", messages.UNEXPECTED_VALUE),
    (r"invalid (?:int|float) value: (?P<value>.+)", messages.NOT_A_NUMBER),
    (r"the following arguments are required: (?P<names>.+)", messages.MISSING_ARGUMENT),
)


def translate_argparse(text: str) -> Message | None:
    """None for a text that is not known."""
    for pattern, message in ARGPARSE_ERRORS:
        if found := re.fullmatch(pattern, text):
            return message.fill(**found.groupdict())
    return None
