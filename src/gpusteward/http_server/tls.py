"""`tls_server_config` of a web config file: validation, and the ssl context made from it."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
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
        if self.allowed_sans is None:
            return True
        names = (client.getpeercert() or {}).get("subjectAltName", ())
        return any(isinstance(entry, tuple) and entry[-1] in self.allowed_sans for entry in names)


def read_tls(section: Section) -> TlsSettings | None:
    certificate, key, client_ca = section.pem("cert"), section.pem("key"), section.pem("client_ca")
    if not (certificate or key or client_ca or section.text("client_auth_type")):
        return None
    if certificate is None or key is None:
        raise section.refuse("", f"lacks a {'key_file' if certificate else 'cert_file'}: TLS needs both")
    if section.texts("curve_preferences"):
        log.warning("web_config_ignored", key="curve_preferences", reason="OpenSSL chooses the curve")
    client_auth = _read_client_auth(section, has_ca=client_ca is not None)
    sans, suites = section.texts("client_allowed_sans"), section.texts("cipher_suites") or ()
    if sans is not None and client_auth is not ssl.CERT_REQUIRED:
        raise section.refuse("client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert")
    return TlsSettings(
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        client_auth=client_auth,
        allowed_sans=None if sans is None else frozenset(sans),
        minimum=section.choice("min_version", VERSIONS, default="TLS12"),
        maximum=section.choice("max_version", VERSIONS, default="TLS13"),
        cipher_suites=tuple(filter(None, (section.pick("cipher_suites", each, CIPHER_SUITES) for each in suites))),
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


def load_context(section: Section, tls: TlsSettings) -> ssl.SSLContext:
    """For the server side. Raises ConfigurationError when certificate, key or CA cannot be read or do not fit."""
    for file in tls.files:  # OpenSSL's error does not name the missing file
        if not file.is_file():
            raise section.refuse("", f"there is no file {file}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.minimum_version, context.maximum_version = tls.minimum, tls.maximum
        if not tls.server_preference:
            context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        if tls.cipher_suites:
            context.set_ciphers(":".join(tls.cipher_suites))
        with _as_file(tls.certificate) as certificate, _as_file(tls.key) as key:
            context.load_cert_chain(certificate, key)
        context.verify_mode = tls.client_auth
        if isinstance(tls.client_ca, Path):
            context.load_verify_locations(cafile=tls.client_ca)
        elif tls.client_ca:
            context.load_verify_locations(cadata=tls.client_ca)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise section.refuse("", f"certificate, key or client CA cannot be used: {error}") from error
    return context


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
