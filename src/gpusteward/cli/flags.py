"""What the flags of the commands a person types have in common."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gpusteward.cli.api.client import Client, make_client
from gpusteward.cli.api.errors import Peer
from gpusteward.cli.language import find_language
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import LANGUAGES, Language

SERVER = "http://127.0.0.1:8080"
AGENT = "http://127.0.0.1:9400"
SERVER_VARIABLE, AGENT_VARIABLE = "GPUSTEWARD_SERVER", "GPUSTEWARD_AGENT"
TOKEN_VARIABLE = "GPUSTEWARD_TOKEN"  # noqa: S105 - the name of a variable, not a token
OUTPUTS = ("table", "json", "csv")
LONGEST_TOKEN_BYTES = 4096


class FlagParser(argparse.ArgumentParser):
    """Mistakes are ConfigurationErrors; flags are never abbreviated."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(message.removeprefix("argument "))

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Raises ConfigurationError, naming the nearest flag to an unknown one; exits after `--help`."""
        namespace, unknown = self.parse_known_args(list(arguments))
        if unknown:
            raise ConfigurationError(self._describe_unknown(unknown[0].partition("=")[0]))
        return namespace

    def _describe_unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"unexpected argument {word!r}; --help tells how it is written"
        return f"unknown flag {word!r}{suggest(word, self._option_string_actions) or '; --help lists all flags'}"


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", "-o", choices=OUTPUTS, default="table", help="how to print (default table)")


def add_language_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--language", choices=LANGUAGES, help="language of texts (default: from LANG)")


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    about = f"the analyzer to ask (default {SERVER}) [{SERVER_VARIABLE}]"
    parser.add_argument("--server", metavar="URL", help=about)
    parser.add_argument(
        "--token-file", metavar="PATH", help=f"file with its bearer token [{TOKEN_VARIABLE}: the token]"
    )
    _add_timeout(parser)


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="URL", help=f"the agent to ask (default {AGENT}) [{AGENT_VARIABLE}]")
    _add_timeout(parser)


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    if "--timeout" not in parser._option_string_actions:
        parser.add_argument(
            "--timeout", type=read_seconds, default=10.0, metavar="SECONDS", help="longest wait for an answer (10)"
        )


def read_seconds(text: str) -> float:
    """A number of seconds. Raises what argparse turns into a line."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def language_of(given: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Language:
    return find_language(given.language, environ)


def open_server(given: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Client:
    """The analyzer that flags and environment name. Raises ConfigurationError."""
    url = given.server or environ.get(SERVER_VARIABLE) or SERVER
    token, origin = _find_token(given.token_file, environ)
    return make_client(Peer.ANALYZER, url, token=token, token_origin=origin, timeout_seconds=given.timeout)


def open_agent(given: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Client:
    """The agent that flags and environment name. Raises ConfigurationError."""
    url = given.agent or environ.get(AGENT_VARIABLE) or AGENT
    return make_client(Peer.AGENT, url, timeout_seconds=given.timeout)


def _find_token(file: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """The token and where it is from; both empty without one."""
    if file:
        return _read_token(Path(file)), f"--token-file {file}"
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if token and not _is_token(token):
        raise ConfigurationError(f"environment variable {TOKEN_VARIABLE} does not hold a token")
    return token, TOKEN_VARIABLE if token else ""


def _read_token(path: Path) -> str:
    """What is no token is refused here, where no error text repeats it."""
    try:
        with path.open("rb") as file:
            token = file.read(LONGEST_TOKEN_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise ConfigurationError(f"--token-file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"--token-file {path} does not hold a token") from None
    if not _is_token(token):
        raise ConfigurationError(f"--token-file {path} does not hold a token: one line, no blanks")
    return token


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text and len(text) <= LONGEST_TOKEN_BYTES
