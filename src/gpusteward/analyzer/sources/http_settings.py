"""The settings that every HTTP source has: URL, credentials and CA file."""

import ssl
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from gpusteward.analyzer.setting_values import SecretFile, read_secret
from gpusteward.core.errors import ConfigurationError
from gpusteward.http.connections import load_tls_context
from gpusteward.http.credentials import Credentials
from gpusteward.http.errors import ConfigurationFileError
from gpusteward.http.urls import HttpUrl, parse_url
from gpusteward.messages.errors import source_errors as messages


class HttpSettings(Protocol):
    """A settings section with credentials; `prometheus` and `scrape` are such sections."""

    username: str
    password: SecretStr | SecretFile
    bearer_token: SecretStr | SecretFile
    headers: dict[str, SecretStr]
    ca_file: Path | None


def parse_setting_url(text: str, *, setting: str) -> HttpUrl:
    """Raises ConfigurationError."""
    try:
        return parse_url(text)
    except ValueError as error:
        raise ConfigurationError(messages.INVALID_URL, setting=setting, reason=error) from None


def make_credentials(settings: HttpSettings, *, section: str, url: HttpUrl | None = None) -> Credentials:
    """Credentials in the URL are used if the settings have no user name.

    Raises ConfigurationError for a password file that cannot be read.
    """
    username, password = (url.username, url.password) if url else ("", "")
    if settings.username:
        username, password = settings.username, _read_password(settings, section)
    token = settings.bearer_token
    return Credentials(
        {name: secret.get_secret_value() for name, secret in settings.headers.items()},
        section=section,
        username=username,
        password=password,
        token="" if isinstance(token, SecretFile) else token.get_secret_value(),
        token_file=token.path if isinstance(token, SecretFile) else None,
    )


def make_tls_context(settings: HttpSettings, *, section: str) -> ssl.SSLContext:
    """Raises ConfigurationError for a CA file that cannot be used."""
    try:
        return load_tls_context(settings.ca_file)
    except ConfigurationFileError as error:
        raise ConfigurationError(messages.CA_FILE, section=section, reason=error) from error


def _read_password(settings: HttpSettings, section: str) -> str:
    try:
        return read_secret(settings.password)
    except (OSError, UnicodeDecodeError) as error:
        path = settings.password.path if isinstance(settings.password, SecretFile) else ""
        reason = type(error).__name__
        raise ConfigurationError(messages.PASSWORD_FILE, section=section, path=path, reason=reason) from error
