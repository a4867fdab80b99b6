"""Who may do what: bearer token -> role. Tokens are kept as keyed digests only, and compared in constant time."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from pydantic import SecretStr

from gpusteward.analyzer.settings.yaml_lines import Written, parse_yaml
from gpusteward.analyzer.watched_file import WatchedText
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import Log

log = Log(__name__)

SHORTEST_TOKEN = 16
"""Shorter ones can be guessed; `openssl rand -hex 32` makes a good one."""


class Role(StrEnum):
    """Each one may do what those before it may."""

    VIEWER = "viewer"  # reads
    OPERATOR = "operator"  # starts analyses, changes settings
    ADMIN = "admin"

    def includes(self, needed: "Role") -> bool:
        order = tuple(Role)
        return order.index(self) >= order.index(needed)


class Tokens:
    """Digests of tokens with their roles; the key they are made with is drawn anew each time and never leaves."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self._key = secrets.token_bytes(32)
        self._roles = tuple((self._digest(token), role) for token, role in roles.items())

    def __len__(self) -> int:
        return len(self._roles)

    def find_role(self, bearer: str | None) -> Role | None:
        """The role of a token, None for one nobody gave out. Every stored token is compared, whichever matches."""
        digest = self._digest(bearer or "")
        found = None
        for known, role in self._roles:
            if hmac.compare_digest(digest, known):
                found = role
        return found

    def _digest(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), key=self._key).digest()


def parse_bearer(authorization: str | None) -> str | None:
    """The token of an `Authorization` header; None when there is none of this kind."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def parse_tokens(text: str, *, where: str) -> dict[str, Role]:
    """`role: token` by line, or YAML with a list of tokens under each role; a role may come several times.

    Raises ConfigurationError, which never repeats a token.
    """
    roles: dict[str, Role] = {}
    for line in _documents(text, where=where):
        for name, written in (line.children or {}).items():
            _add(roles, _role(name, where=where, line=written.line), written, where=where)
    return roles


def _documents(text: str, *, where: str) -> Iterable[Written]:
    """Every unindented line begins a document of its own, so that a repeated role adds instead of replacing."""
    if text.lstrip().startswith("{"):
        blocks = [(1, text)]
    else:
        blocks = _blocks(text if "\n" in text.strip() else _one_a_line(text))
    for number, block in blocks:
        document = parse_yaml("\n" * (number - 1) + block, where=where)
        if document is not None and document.children is None:
            raise ConfigurationError(f"{where} line {number}: write ROLE: TOKEN, with one of {', '.join(Role)}")
        if document is not None:
            yield document


def _one_a_line(text: str) -> str:
    """`viewer: a, admin: b`, as it fits into a variable."""
    return re.sub(r"\s*,\s*(?=\w+\s*:)", "\n", text)


def _blocks(text: str) -> list[tuple[int, str]]:
    blocks: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        continues = blocks and (not line.strip() or line[0].isspace() or line.startswith(("-", "#")))
        if continues:
            blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]}\n{line}")
        else:
            blocks.append((number, line.strip()))
    return blocks


def _role(name: str, *, where: str, line: int) -> Role:
    try:
        return Role(name.strip().lower())
    except ValueError:
        # A token written in the place of a role must not be repeated either.
        hint = suggest(name, [role.value for role in Role])
        raise ConfigurationError(
            f"{where} line {line}: a role is missing or unknown{hint}; write ROLE: TOKEN, with one of {', '.join(Role)}"
        ) from None


def _add(roles: dict[str, Role], role: Role, written: Written, *, where: str) -> None:
    for token in _tokens_in(written):
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigurationError(
                f"{where} line {written.line}: a token of {role} cannot be used: at least {SHORTEST_TOKEN} printable "
                "ASCII characters without blanks are needed; `openssl rand -hex 32` makes one"
            )
        if roles.setdefault(token, role) is not role:
            raise ConfigurationError(
                f"{where} line {written.line}: the same token stands under {roles[token]} and {role}"
            )


def _tokens_in(written: Written) -> list[str]:
    """Tokens as they were written: one of digits only is no number."""
    if written.text is not None:
        return [written.text.strip()]
    return list(written.texts) or [""]


class Roles:
    """Tokens from the settings and from a file that is looked at again.

    Raises ConfigurationError when they cannot be used at the start; a file that turns bad later is refused, said once,
    and the last good tokens stay.
    """

    def __init__(self, tokens_file: Path | None, tokens: SecretStr) -> None:
        self.reloads_refused = 0
        self._given = parse_tokens(tokens.get_secret_value(), where="server.tokens")
        self._watched = WatchedText(tokens_file, setting="server.tokens_file") if tokens_file else None
        self._complaint = ""
        self._tokens = self._read()

    @property
    def are_set(self) -> bool:
        """Whether writes need a token: one was given, or a file is named for them, even if nobody is in it yet."""
        return self._watched is not None or len(self._tokens) > 0

    def find_role(self, bearer: str | None) -> Role | None:
        """Touches no file: safe on an event loop."""
        return self._tokens.find_role(bearer)

    def poll(self, now: float) -> None:
        """Look at the file again. `now` is monotonic seconds."""
        del now  # a look costs one stat: every poll looks
        if self._watched is None or not self._watched.has_changed():
            return
        try:
            self._tokens = self._read()
        except ConfigurationError as error:
            self._refuse(str(error))
        else:
            self._complaint = ""
            log.info("tokens_reloaded", file=self._watched.path, tokens=len(self._tokens))

    def _read(self) -> Tokens:
        if self._watched is None:
            return Tokens(self._given)
        read = parse_tokens(self._watched.read(), where=str(self._watched.path))
        return Tokens(self._given | read)

    def _refuse(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            self.reloads_refused += 1
            log.warning("tokens_refused", reason=complaint, kept="the last good tokens")
