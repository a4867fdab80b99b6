"""Who we are to others: the headers with credentials that every request carries."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from gpusteward.core.errors import ConfigurationError, SourceError

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile("[\t -~\x80-\xff]*")


class Identity(Protocol):
    """The settings that say who we are; several sections have them."""

    @property
    def username(self) -> str: ...
    @property
    def password(self) -> SecretStr: ...
    @property
    def password_file(self) -> Path | None: ...
    @property
    def bearer_token(self) -> SecretStr: ...
    @property
    def bearer_token_file(self) -> Path | None: ...
    @property
    def headers(self) -> Mapping[str, SecretStr]: ...


class Credentials:
    """A token file is read again when it changes: tokens of pods expire."""

    def __init__(self, identity: Identity, *, section: str, user: str = "", password: str = "") -> None:
        """`user` and `password` hold where the settings name none. Raises ConfigurationError for a password file that
        cannot be read."""
        self._section = section
        self._token_file = identity.bearer_token_file
        self._token_stamp: tuple[int, int] | None = None
        self._token = identity.bearer_token.get_secret_value()
        self._fixed = {name: secret.get_secret_value() for name, secret in identity.headers.items()}
        if identity.username:
            user, password = identity.username, _read_password(identity, section)
        if user:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._fixed["Authorization"] = f"Basic {pair}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def headers(self) -> dict[str, str]:
        """Raises SourceError when the token file cannot be read, or holds what no header can carry."""
        if self._token_file is not None:
            self._refresh(self._token_file)
        told = self._fixed | {"Authorization": f"Bearer {self._token}"} if self._token else dict(self._fixed)
        for name, value in told.items():
            self._check(name, value)
        return told

    def _check(self, name: str, value: str) -> None:
        """Here, because the libraries that send it would repeat the value in their complaint, or send two headers."""
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise SourceError(
                f"the header {name[:100]!r} cannot be sent: check {self._section}.headers and the token for line"
                " ends and signs beyond Latin-1"
            )

    def _refresh(self, path: Path) -> None:
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_ino)
            if stamp != self._token_stamp:
                self._token, self._token_stamp = path.read_text().strip(), stamp
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(
                f"{self._section}.bearer_token_file {path} cannot be read: {type(error).__name__}"
            ) from error


def _read_password(identity: Identity, section: str) -> str:
    if identity.password_file is None:
        return identity.password.get_secret_value()
    try:
        return identity.password_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{section}.password_file {identity.password_file} cannot be read: {type(error).__name__}"
        ) from error
