"""Who we are to the engine: headers with credentials, and whose certificate we believe."""

import ssl
from urllib.parse import unquote, urlsplit

from gpusteward.analyzer.sources.credentials import Credentials
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.core.errors import ConfigurationError


class Access(Credentials):
    """The headers every request carries, and the address without what is secret in it."""

    def __init__(self, settings: PrometheusSettings) -> None:
        """Raises ConfigurationError for a password file that cannot be read."""
        self.url, user, password = split_url(settings.url)
        super().__init__(settings, section="prometheus", user=user, password=password)


def split_url(url: str) -> tuple[str, str, str]:
    """The address without credentials, and these: what is not in an address cannot get into a log with it."""
    parts = urlsplit(url)
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return plain, unquote(parts.username or ""), unquote(parts.password or "")


def build_verification(settings: PrometheusSettings) -> ssl.SSLContext | None:
    """How the engine's certificate is checked. Raises ConfigurationError."""
    if not settings.url.startswith("https:"):
        return None  # nothing to check; loading the system's certificates costs memory and time
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"prometheus.ca_file {settings.ca_file} cannot be used: {error}") from error
