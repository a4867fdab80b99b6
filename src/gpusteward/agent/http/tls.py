"""`tls_server_config` of a web config file -> an ssl context."""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}

# How Go spells the cipher suites of TLS 1.2 -> how OpenSSL does. Those of TLS 1.3 cannot be chosen, there or here.
CIPHER_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}

# RequestClientCert lets everybody in, whatever certificate they show or do not show: the same as not asking.
CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What a web config file says about TLS; a PEM part is a file or the text itself."""

    certificate: Path | str
    key: Path | str
    client_ca: Path | str | None = None
    client_auth: ssl.VerifyMode = ssl.CERT_NONE
    allowed_sans: frozenset[str] | None = None
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    cipher_suites: tuple[str, ...] = ()
    server_preference: bool = True

    @property
    def files(self) -> tuple[Path, ...]:
        """What must be read again when it changes."""
        return tuple(part for part in (self.certificate, self.key, self.client_ca) if isinstance(part, Path))


def build_context(settings: TlsSettings) -> ssl.SSLContext:
    """An ssl context for the server side.

    Raises OSError (ssl.SSLError is one) when certificate, key or CA cannot be read or do not fit together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = settings.minimum, settings.maximum
    if not settings.server_preference:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if settings.cipher_suites:
        context.set_ciphers(":".join(settings.cipher_suites))
    with ExitStack() as stack:
        certificate = stack.enter_context(_as_file(settings.certificate))
        context.load_cert_chain(certificate, stack.enter_context(_as_file(settings.key)))
    _trust_clients(context, settings)
    return context


def _trust_clients(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.verify_mode = settings.client_auth
    if isinstance(settings.client_ca, Path):
        context.load_verify_locations(cafile=settings.client_ca)
    elif settings.client_ca:
        context.load_verify_locations(cadata=settings.client_ca)
    elif settings.client_auth is not ssl.CERT_NONE:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)


@contextmanager
def _as_file(pem: Path | str) -> Iterator[Path]:
    """OpenSSL's Python door takes certificates from files only; a key given as text stays in memory."""
    if isinstance(pem, Path):
        yield pem
        return
    with os.fdopen(os.memfd_create("pem"), "w") as memory:
        memory.write(pem)
        memory.flush()
        yield Path(f"/proc/self/fd/{memory.fileno()}")


def is_allowed_client(connection: ssl.SSLSocket, allowed_sans: frozenset[str]) -> bool:
    """Whether the client's certificate carries one of these subject alternative names."""
    certificate = connection.getpeercert() or {}
    names = certificate.get("subjectAltName", ())
    return any(isinstance(entry, tuple) and entry[-1] in allowed_sans for entry in names)
