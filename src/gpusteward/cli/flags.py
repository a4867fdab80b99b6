"""Flags that several commands share, and the parser that reports mistakes in them."""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gpusteward.cli.api.client import Client, Peer, make_client
from gpusteward.cli.program import LANGUAGE_FLAG, NAME, describe_exits, find_language, is_plugin, name_program
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import LANGUAGES, Language
from gpusteward.core.settings import explain_argparse
from gpusteward.messages.errors.os_errors import explain_os_error

SERVER = "http://127.0.0.1:8080"
AGENT = "http://127.0.0.1:9400"
SERVER_VARIABLE, AGENT_VARIABLE = "GPUSTEWARD_SERVER", "GPUSTEWARD_AGENT"
TOKEN_VARIABLE = "GPUSTEWARD_TOKEN"  # noqa: S105 - the name of a variable, not a token
CA_VARIABLE = "GPUSTEWARD_CA_FILE"
OUTPUTS = ("table", "json", "csv")
WIDE = "wide"  # a table with more columns
MAX_TOKEN_BYTES = 16384
"""An ID token that lists many groups has several thousand."""
WORKLOAD_FORMS = "NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME; a pod's name too"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class FlagParser(argparse.ArgumentParser):
    """Raises ConfigurationError instead of exiting. Flags cannot be abbreviated."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog.replace(NAME, name_program(), 1),
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            exit_on_error=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Called by argparse for what is not about a single flag."""
        raise ConfigurationError(explain_argparse(message))

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Raises ConfigurationError, with the nearest flag to an unknown one; exits after `--help`."""
        try:
            namespace, unknown = self.parse_known_args(list(arguments))
        except argparse.ArgumentError as error:
            raise ConfigurationError(f"{error.argument_name}: {explain_argparse(error.message)}") from None
        if unknown:
            word = unknown[0].partition("=")[0]
            if not word.startswith("-"):
                raise ConfigurationError(f"unexpected argument {word!r}; --help shows the usage")
            suggestion = suggest(word, self._option_string_actions) or "; --help lists all flags"
            raise ConfigurationError(f"unknown flag {word!r}{suggestion}")
        if getattr(namespace, "all_namespaces", False):
            namespace.namespace = self.get_default("namespace")
        return namespace


def make_parser(command: str, description: str) -> FlagParser:
    """A parser whose help ends with the exit codes of the command."""
    return FlagParser(prog=f"{NAME} {command}", description=description, epilog=describe_exits(command))


def add_request_flags(parser: argparse.ArgumentParser, *, has_wide: bool = False) -> None:
    """Of commands that print a response of the analyzer."""
    add_output_flags(parser, has_wide=has_wide)
    add_language_flag(parser)
    add_server_flags(parser)


def add_output_flags(parser: argparse.ArgumentParser, *, has_wide: bool = False) -> None:
    choices = (OUTPUTS[0], WIDE, *OUTPUTS[1:]) if has_wide else OUTPUTS
    parser.add_argument("--output", "-o", choices=choices, default="table", help="output format (default table)")


def add_language_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        LANGUAGE_FLAG, choices=LANGUAGES, help="output language (default: from LC_ALL, LC_MESSAGES or LANG)"
    )


def add_cluster_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster", action="append", metavar="NAME", help="only this cluster, where there are several; may be repeated"
    )


def add_namespace_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namespace", "-n", action="append", metavar="NAME", help="only this namespace; may be repeated"
    )


def add_workload_flags(parser: argparse.ArgumentParser) -> None:
    """Where the workload is that the command is about."""
    parser.add_argument("--namespace", "-n", default="", metavar="NAME", help="namespace of the workload")
    parser.add_argument("--cluster", default="", metavar="NAME", help="its cluster, where there are several")


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Those of the analyzer; for a plugin of kubectl, those of the kubeconfig."""
    about = f"address of the analyzer (default {SERVER}) [{SERVER_VARIABLE}]"
    if is_plugin():
        from gpusteward.cli.kubectl.analyzer import add_cluster_access_flags

        add_cluster_access_flags(parser)
    else:
        parser.add_argument("--server", metavar="URL", help=about)
    parser.add_argument(
        "--token-file", metavar="PATH", help=f"file with the bearer token [{TOKEN_VARIABLE}: the token itself]"
    )
    _add_connection_flags(parser)


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    """Not for a plugin of kubectl: agents are reached through the analyzer there."""
    about = f"address of the agent (default {AGENT}) [{AGENT_VARIABLE}]"
    if is_plugin():
        parser.set_defaults(agent=None)
        return
    parser.add_argument("--agent", metavar="URL", help=about)
    _add_connection_flags(parser)


def _add_connection_flags(parser: argparse.ArgumentParser) -> None:
    if "--timeout" not in parser._option_string_actions:
        if not is_plugin():
            parser.add_argument(
                "--ca-file",
                metavar="PATH",
                help=f"file with the CA certificates to trust for https [{CA_VARIABLE}]",
            )
        parser.add_argument(
            "--timeout", type=read_seconds, default=10.0, metavar="SECONDS", help="timeout of a request (default 10)"
        )


def read_seconds(text: str) -> float:
    """Raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def read_duration(text: str) -> float:
    """Seconds of `90s`, `30m`, `2h`, `7d`, `1w`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 90s, 30m, 2h, 7d or 1w")
    return float(found[1]) * UNITS[found[2]]


def integer_between(least: int, most: int) -> Callable[[str], int]:
    """A converter that raises ArgumentTypeError."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return read


def language_of(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Language:
    return find_language(options.language, environ)


def make_analyzer_client(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Client:
    """A client of the analyzer that flags and environment name. Raises ConfigurationError, as a plugin SourceError."""
    token, origin = _find_token(options.token_file, environ)
    if is_plugin():
        from gpusteward.cli.kubectl.analyzer import make_cluster_client

        language = language_of(options, environ)
        return make_cluster_client(options, token=token, token_origin=origin, language=language, environ=environ)
    url = options.server or environ.get(SERVER_VARIABLE) or SERVER
    return make_client(
        Peer.ANALYZER,
        url,
        token=token,
        token_origin=origin,
        headers={"Accept-Language": language_of(options, environ)},
        timeout_seconds=options.timeout,
        ca_file=find_ca_file(options, environ),
    )


def make_agent_client(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Client:
    """A client of the agent that flags and environment name. Raises ConfigurationError."""
    url = options.agent or environ.get(AGENT_VARIABLE) or AGENT
    return make_client(Peer.AGENT, url, timeout_seconds=options.timeout, ca_file=find_ca_file(options, environ))


def find_ca_file(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> str | None:
    return options.ca_file or environ.get(CA_VARIABLE) or None


def _find_token(file: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """The token and where it comes from; both are empty without one. Checked here because later error texts might
    repeat it."""
    if not file:
        token = environ.get(TOKEN_VARIABLE, "").strip()
        if token and not _is_token(token):
            raise ConfigurationError(f"environment variable {TOKEN_VARIABLE} does not contain a token")
        return token, TOKEN_VARIABLE if token else ""
    try:
        with Path(file).open("rb") as opened:
            token = opened.read(MAX_TOKEN_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise ConfigurationError(f"--token-file {file}: {explain_os_error(error)}") from error
    except UnicodeDecodeError:
        token = ""
    if not _is_token(token):
        raise ConfigurationError(f"--token-file {file} does not contain a token: write one line without spaces")
    return token, f"--token-file {file}"


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text and len(text) <= MAX_TOKEN_BYTES
