"""Bearer tokens and their roles. Tokens are stored as keyed digests only, and compared in constant time."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from pydantic import SecretStr
from starlette.datastructures import Headers

from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import Log
from gpusteward.watched_file import WatchedFile
from gpusteward.yaml_lines import Written, parse_yaml

log = Log(__name__)

SHORTEST_TOKEN = 16
"""Shorter ones can be guessed; `openssl rand -hex 32` generates a good one."""


FORWARDED_AUTHORIZATION = "x-gpusteward-authorization"
"""Read as `Authorization`, which the proxy of a Kubernetes API server removes."""


class Role(StrEnum):
    """Each role includes the roles before it."""

    VIEWER = "viewer"  # may read
    OPERATOR = "operator"  # may start analyses and change settings
    ADMIN = "admin"

    def includes(self, needed: "Role") -> bool:
        order = tuple(Role)
        return order.index(self) >= order.index(needed)


class Tokens:
    """Digests of tokens with their roles. The key of the digests is random and stays in this object."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self._key = secrets.token_bytes(32)
        self._roles = tuple((self._digest(token), role) for token, role in roles.items())

    def __len__(self) -> int:
        return len(self._roles)

    def find_role(self, bearer: str | None) -> Role | None:
        """The role of a token; None for an unknown one. Every stored token is compared, even after a match."""
        digest = self._digest(bearer or "")
        found = None
        for known, role in self._roles:
            if hmac.compare_digest(digest, known):
                found = role
        return found

    def _digest(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), key=self._key).digest()


def parse_bearer(authorization: str | None) -> str | None:
    """The token of an `Authorization` header; None for another scheme."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def read_authorization(headers: Headers) -> list[str]:
    """The values of `Authorization`, and of the header that stands for it where a proxy removes it: one at most, unless
    somebody tries to add to the credentials of somebody else."""
    return [*headers.getlist("authorization"), *headers.getlist(FORWARDED_AUTHORIZATION)]


def parse_tokens(text: str, *, where: str) -> dict[str, Role]:
    """Lines of `role: token`, or YAML with a list of tokens under each role; a role may occur several times.

    Raises ConfigurationError, whose text never contains a token.
    """
    roles: dict[str, Role] = {}
    for line in _documents(text, where=where):
        for name, written in (line.children or {}).items():
            role = _role(name, where=where, line=written.line)
            # Tokens as they were written: one of digits only is not a number.
            for token in [written.text.strip()] if written.text is not None else list(written.texts) or [""]:
                if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
                    raise ConfigurationError(
                        f"{where} line {written.line}: a token of {role} cannot be used: at least {SHORTEST_TOKEN} "
                        "printable ASCII characters without blanks are needed; `openssl rand -hex 32` generates one"
                    )
                if roles.setdefault(token, role) is not role:
                    raise ConfigurationError(
                        f"{where} line {written.line}: the same token is listed under {roles[token]} and {role}"
                    )
    return roles


def _documents(text: str, *, where: str) -> Iterable[Written]:
    """Every unindented line starts a separate document, so that a repeated role adds tokens."""
    if text.lstrip().startswith("{"):
        blocks = [(1, text)]
    else:
        # `viewer: a, admin: b` as in an environment variable: one role per line.
        lines = text if "\n" in text.strip() else re.sub(r"\s*,\s*(?=\w+\s*:)", "\n", text)
        blocks = _blocks(lines)
    for number, block in blocks:
        document = parse_yaml("\n" * (number - 1) + block, where=where)
        if document is not None and document.children is None:
            raise ConfigurationError(f"{where} line {number}: write ROLE: TOKEN, with one of {', '.join(Role)}")
        if document is not None:
            yield document


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
        # The text may be a token in the wrong place: do not repeat it.
        hint = suggest(name, [role.value for role in Role])
        raise ConfigurationError(
            f"{where} line {line}: a role is missing or unknown{hint}; write ROLE: TOKEN, with one of {', '.join(Role)}"
        ) from None


class Roles:
    """Tokens from the settings and from a file that is read again when it changes.

    Raises ConfigurationError when they cannot be used at the start. A file that becomes invalid later is refused, which
    is logged once, and the previous tokens stay valid.
    """

    def __init__(self, tokens_file: Path | None, tokens: SecretStr) -> None:
        self.reloads_refused = 0
        self._configured = parse_tokens(tokens.get_secret_value(), where="server.tokens")
        self._watched = WatchedFile(tokens_file, setting="server.tokens_file") if tokens_file else None
        self._refusal = ""
        self._tokens = self._read()

    @property
    def are_set(self) -> bool:
        """Whether writes need a token: one is configured, or a file for them, even if it is empty."""
        return self._watched is not None or len(self._tokens) > 0

    def find_role(self, bearer: str | None) -> Role | None:
        """Reads no file: safe on an event loop."""
        return self._tokens.find_role(bearer)

    def reload(self) -> None:
        """Read the file if it has changed; a check costs one stat call."""
        if self._watched is None or not self._watched.has_changed():
            return
        try:
            self._tokens = self._read()
        except ConfigurationError as error:
            self._refuse(str(error))
        else:
            self._refusal = ""
            log.info("tokens_reloaded", file=self._watched.path, tokens=len(self._tokens))

    def _read(self) -> Tokens:
        if self._watched is None:
            return Tokens(self._configured)
        text = self._watched.read()
        self._watched.check_writers()
        read = parse_tokens(text, where=str(self._watched.path))
        return Tokens(self._configured | read)

    def _refuse(self, reason: str) -> None:
        if reason != self._refusal:
            self._refusal = reason
            self.reloads_refused += 1
            log.warning("tokens_refused", reason=reason, kept="the previous tokens")
