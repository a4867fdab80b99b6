"""Who we are to the engine: headers with credentials, and whose certificate we believe."""

import base64
import ssl
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpusteward.analyzer.read.prometheus.settings import PrometheusSettings
from gpusteward.core.errors import ConfigurationError, SourceError


class Access:
    """The headers every request carries. A token file is read again when it changes: tokens of pods expire."""

    def __init__(self, settings: PrometheusSettings) -> None:
        """Raises ConfigurationError for a password file that cannot be read."""
        self._token_file = settings.bearer_token_file
        self._token_stamp: tuple[int, int] | None = None
        self._token = settings.bearer_token.get_secret_value()
        self._fixed = {name: secret.get_secret_value() for name, secret in settings.headers.items()}
        self.url, user, password = split_url(settings.url)
        if settings.username:
            user, password = settings.username, _read_password(settings)
        if user:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._fixed["Authorization"] = f"Basic {pair}"

    def __repr__(self) -> str:
        return "Access(...)"

    def headers(self) -> dict[str, str]:
        """Raises SourceError when the token file cannot be read."""
        if self._token_file is not None:
            self._refresh(self._token_file)
        return self._fixed | {"Authorization": f"Bearer {self._token}"} if self._token else dict(self._fixed)

    def _refresh(self, path: Path) -> None:
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_ino)
            if stamp != self._token_stamp:
                self._token, self._token_stamp = path.read_text().strip(), stamp
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"prometheus.bearer_token_file {path} cannot be read: {type(error).__name__}") from error


def split_url(url: str) -> tuple[str, str, str]:
    """The address without credentials, and these: what is not in an address cannot get into a log with it."""
    parts = urlsplit(url)
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return plain, unquote(parts.username or ""), unquote(parts.password or "")


def build_verification(settings: PrometheusSettings) -> ssl.SSLContext | bool:
    """How the engine's certificate is checked. Raises ConfigurationError."""
    if not settings.url.startswith("https:"):
        return False  # nothing to check; loading the system's certificates costs memory and time
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"prometheus.ca_file {settings.ca_file} cannot be used: {error}") from error


def _read_password(settings: PrometheusSettings) -> str:
    if settings.password_file is None:
        return settings.password.get_secret_value()
    try:
        return settings.password_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"prometheus.password_file {settings.password_file} cannot be read: {type(error).__name__}"
        ) from error
