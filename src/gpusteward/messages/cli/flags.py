"""Errors in commands, flags and arguments, also those that argparse writes in English."""

import re
from collections.abc import Sequence

from gpusteward.core.messages import Message

MISSING_LIBRARY = Message(
    "{library!r} is not installed: pip install gpusteward",
    "未安装 {library!r}：pip install gpusteward",
)
UNKNOWN_COMMAND = Message("unknown command {word!r}{suggestion}", "未知命令 {word!r}{suggestion}")
UNKNOWN_FLAG = Message("unknown flag {word!r}{suggestion}", "未知参数 {word!r}{suggestion}")
SEE_COMMANDS = Message("; {program} --help lists the commands", "；用 {program} --help 查看所有命令")
SEE_FLAGS = Message("; --help lists all flags", "；用 --help 查看所有参数")
UNEXPECTED_ARGUMENT = Message(
    "unexpected argument {word!r}; --help shows the usage", "多余的参数 {word!r}；用 --help 查看用法"
)
MISSING_ARGUMENT = Message("missing argument: {names}", "缺少参数：{names}")
INVALID_FLAG = Message("{flag}: {problem}", "{flag}：{problem}")
INVALID_CHOICE = Message("{value} is not one of {choices}", "{value} 不是有效值，可选：{choices}")
MISSING_VALUE = Message("a value is missing", "缺少取值")
TOO_MANY_VALUES = Message("at most one value is allowed", "最多只能有一个取值")
UNEXPECTED_VALUE = Message("takes no value, but has {value}", "不接受取值，但给出了 {value}")
NOT_A_NUMBER = Message("{value} is not a number", "{value} 不是数字")
NOT_SECONDS = Message("{value!r} is not a number of seconds from 0 to 3600", "{value!r} 不是 0 到 3600 之间的秒数")
NOT_A_DURATION = Message(
    "{value!r} is not a duration: write 90s, 30m, 2h, 7d or 1w",
    "{value!r} 不是时长：请写成 90s、30m、2h、7d 或 1w",
)
NOT_IN_RANGE = Message(
    "{value!r} is not a number from {least} to {most}", "{value!r} 不是 {least} 到 {most} 之间的数字"
)
INVALID_TOKEN_VARIABLE = Message(
    "environment variable {name} does not contain a token", "环境变量 {name} 的内容不是令牌"
)
INVALID_TOKEN_FILE = Message(
    "--token-file {path} does not contain a token: write one line without spaces",
    "--token-file {path} 的内容不是令牌：应只有一行，且不含空格",
)
FILE_ERROR = Message("{flag} {path}: {reason}", "{flag} {path}：{reason}")

ARGPARSE_ERRORS: Sequence[tuple[str, Message]] = (
    (r"invalid choice: (?P<value>.+) \(choose from (?P<choices>.+)\)", INVALID_CHOICE),
    (r"expected (?:one|at least one) argument", MISSING_VALUE),
    (r"expected at most one argument", TOO_MANY_VALUES),
    (r"ignored explicit argument (?P<value>.+)", UNEXPECTED_VALUE),
    (r"invalid (?:int|float) value: (?P<value>.+)", NOT_A_NUMBER),
    (r"the following arguments are required: (?P<names>.+)", MISSING_ARGUMENT),
)


def translate_argparse(text: str) -> Message | None:
    """None for a text that is not known."""
    for pattern, message in ARGPARSE_ERRORS:
        if found := re.fullmatch(pattern, text):
            return message.fill(**found.groupdict())
    return None
