"""`tls_server_config` of a web config file: validation, and the ssl context made from it."""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpusteward.http_server.yaml_section import Section
from gpusteward.logs import Log

log = Log(__name__)

TLS_KEYS = (
    *("cert", "key", "client_ca", "cert_file", "key_file", "client_ca_file", "client_auth_type"),
    *("client_allowed_sans", "min_version", "max_version"),
    *("cipher_suites", "prefer_server_cipher_suites", "curve_preferences"),
)
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}

# Go's names of the TLS 1.2 cipher suites -> OpenSSL's. Those of TLS 1.3 cannot be chosen, neither in Go nor here.
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

# RequestClientCert accepts any certificate or none, so it is the same as NoClientCert.
CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The TLS settings of a web config file; PEM data is a file or the text itself."""

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
        """Files to reload when they change."""
        return tuple(part for part in (self.certificate, self.key, self.client_ca) if isinstance(part, Path))

    @property
    def verifies_clients(self) -> bool:
        return self.client_auth is ssl.CERT_REQUIRED

    def allows(self, client: ssl.SSLSocket | ssl.SSLObject) -> bool:
        """Whether a client may connect, as far as the names in its certificate are limited."""
        return self.allowed_sans is None or is_allowed_client(client, self.allowed_sans)


def read_tls(section: Section) -> TlsSettings | None:
    certificate, key, client_ca = section.pem("cert"), section.pem("key"), section.pem("client_ca")
    if not (certificate or key or client_ca or section.text("client_auth_type")):
        return None
    if certificate is None or key is None:
        raise section.refuse("", f"lacks a {'key_file' if certificate else 'cert_file'}: TLS needs both")
    if section.texts("curve_preferences"):
        log.warning("web_config_ignored", key="curve_preferences", reason="OpenSSL chooses the curve")
    return TlsSettings(
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        client_auth=_read_client_auth(section, has_ca=client_ca is not None),
        allowed_sans=_read_sans(section),
        minimum=section.choice("min_version", VERSIONS, default="TLS12"),
        maximum=section.choice("max_version", VERSIONS, default="TLS13"),
        cipher_suites=_read_cipher_suites(section),
        server_preference=section.switch("prefer_server_cipher_suites", default=True),
    )


def _read_client_auth(section: Section, *, has_ca: bool) -> ssl.VerifyMode:
    word = section.text("client_auth_type")
    if word in ("RequireAnyClientCert", "RequireClientCert"):
        why = "accepts any certificate without verifying it: use RequireAndVerifyClientCert and a client_ca_file"
        raise section.refuse("client_auth_type", f"{word} {why}")
    mode = section.pick("client_auth_type", word, CLIENT_AUTH)
    if mode is not ssl.CERT_NONE and not has_ca:
        raise section.refuse("client_auth_type", "needs a client_ca_file: any public CA would be trusted without it")
    if mode is ssl.CERT_NONE and has_ca:
        raise section.refuse("client_ca_file", "needs client_auth_type: RequireAndVerifyClientCert")
    return mode


def _read_sans(section: Section) -> frozenset[str] | None:
    names = section.texts("client_allowed_sans")
    if names is not None and section.text("client_auth_type") != "RequireAndVerifyClientCert":
        raise section.refuse("client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert")
    return None if names is None else frozenset(names)


def _read_cipher_suites(section: Section) -> tuple[str, ...]:
    names = section.texts("cipher_suites") or ()
    return tuple(filter(None, (section.pick("cipher_suites", name, CIPHER_SUITES) for name in names)))


def load_context(section: Section, tls: TlsSettings) -> ssl.SSLContext:
    for file in tls.files:  # OpenSSL's error does not name the missing file
        if not file.is_file():
            raise section.refuse("", f"there is no file {file}")
    try:
        return build_context(tls)
    except (OSError, ValueError) as error:
        raise section.refuse("", f"certificate, key or client CA cannot be used: {error}") from error


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


@contextmanager
def _as_file(pem: Path | str) -> Iterator[Path]:
    """Python's ssl module loads certificates from files only; a key given as text is kept in memory."""
    if isinstance(pem, Path):
        yield pem
        return
    with os.fdopen(os.memfd_create("pem"), "w") as memory:
        memory.write(pem)
        memory.flush()
        yield Path(f"/proc/self/fd/{memory.fileno()}")


def is_allowed_client(connection: ssl.SSLSocket | ssl.SSLObject, allowed_sans: frozenset[str]) -> bool:
    """Whether the client certificate has one of these subject alternative names."""
    certificate = connection.getpeercert() or {}
    names = certificate.get("subjectAltName", ())
    return any(isinstance(entry, tuple) and entry[-1] in allowed_sans for entry in names)
