"""Headers that authenticate a request."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path

from gpusteward.http.errors import ConfigurationFileError, InvalidRequestError
from gpusteward.messages.errors import http_errors as messages

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile("[\t -~\x80-\xff]*")


def basic_authorization(username: str, password: str) -> str:
    """The value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def is_header(name: str, value: str) -> bool:
    """Whether a header can be sent."""
    return bool(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value))


def is_token(text: str) -> bool:
    """Whether a text can be a bearer token: one line of printable ASCII without blanks."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


class TokenFile:
    """A file with a token; read again when it changes, because the tokens of pods expire."""

    def __init__(self, path: Path, *, setting: str) -> None:
        """`setting`: what error texts call it."""
        self.path = path
        self._setting = setting
        self._token = ""
        self._state: tuple[int, int, int] | None = None

    def read(self) -> str:
        """Raises ConfigurationFileError."""
        try:
            stat = self.path.stat()
            state = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if state != self._state:
                self._token, self._state = self.path.read_text(encoding="utf-8").strip(), state
        except (OSError, UnicodeDecodeError) as error:
            reason = type(error).__name__
            raise ConfigurationFileError(
                messages.TOKEN_FILE_UNREADABLE, setting=self._setting, path=self.path, reason=reason
            ) from None
        return self._token


class Credentials:
    """The headers that every request to one server carries."""

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        section: str,
        username: str = "",
        password: str = "",
        token: str = "",
        token_file: Path | None = None,
    ) -> None:
        """A token is preferred to a password. `section`: the settings that error texts name."""
        self._headers = dict(headers)
        self._section = section
        self._token = token
        self._token_file = TokenFile(token_file, setting=f"{section}.bearer_token_file") if token_file else None
        if username:
            self._headers["Authorization"] = basic_authorization(username, password)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def headers(self) -> dict[str, str]:
        """Raises ConfigurationFileError, InvalidRequestError."""
        headers = dict(self._headers)
        if token := self._token_file.read() if self._token_file else self._token:
            headers["Authorization"] = f"Bearer {token}"
        for name, value in headers.items():
            if not is_header(name, value):
                raise InvalidRequestError(messages.INVALID_CREDENTIALS, name=name[:100], section=self._section)
        return headers
