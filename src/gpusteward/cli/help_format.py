"""`--help` in Chinese: the texts of a parser translated, and lines as wide as the terminal."""

import argparse
import re
from collections.abc import Iterable
from typing import Any

from gpusteward.cli.output.terminal_text import wrap
from gpusteward.messages.cli.help_texts import USAGE, translate_help

_EXIT_CODE = re.compile(r"(\s*(?:\d+\s+)?)(.*)")


class ChineseHelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A Chinese character takes two columns."""

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        super().add_usage(usage, actions, groups, USAGE.zh if prefix is None else prefix)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return list(wrap(text, width))


def translate_parser(parser: argparse.ArgumentParser) -> None:
    """Into Chinese, for good: to be called right before the help is printed."""
    parser.formatter_class = ChineseHelpFormatter
    parser.description = translate_help(parser.description or "", "zh")
    parser.epilog = "\n".join(_translate_line(line) for line in (parser.epilog or "").splitlines())
    for action in parser._actions:
        action.help = translate_help(action.help or "", "zh")
    for group in parser._action_groups:
        group.title = translate_help(group.title or "", "zh")
        group.description = translate_help(group.description or "", "zh") or None


def _translate_line(line: str) -> str:
    """A line of the epilog may begin with an exit code."""
    found = _EXIT_CODE.fullmatch(line)
    return found[1] + translate_help(found[2], "zh") if found else line
