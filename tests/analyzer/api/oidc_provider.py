"""An OpenID Connect provider on loopback: a discovery document, a JWKS, and tokens signed with its keys.

with running_provider() as provider: provider.sign({"groups": ["a"]})
"""

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

AUDIENCE = "gpusteward"
Json = dict[str, Any]


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def make_rsa(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def publish(key: PrivateKeyTypes, key_id: str, **others: str) -> Json:
    """The public key as a JWK."""
    import jwt

    algorithms = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256", ed25519.Ed25519PrivateKey: "EdDSA"}
    name = next(name for kind, name in algorithms.items() if isinstance(key, kind))
    public = jwt.get_algorithm_by_name(name).to_jwk(key.public_key(), as_dict=True)
    return {
        "kid": key_id,
        "use": "sig",
        **{part: public[part] for part in ("kty", "n", "e", "crv", "x", "y") if part in public},
        **others,
    }


@dataclass
class Provider:
    """`documents`: what it answers, by path; a path that is not there is an error 500."""

    url: str
    keys: dict[str, PrivateKeyTypes]
    documents: dict[str, Any] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    is_hanging: threading.Event = field(default_factory=threading.Event)

    def publish_keys(self, *jwks: Mapping[str, Any]) -> None:
        listed = list(jwks) or [publish(key, name) for name, key in self.keys.items()]
        self.documents = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": listed},
        }

    def claims(self, **others: Any) -> Json:
        now = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300, **others}
        return {name: value for name, value in claims.items() if value is not None}

    def sign(
        self,
        *,
        key: Any = None,
        key_id: str | None = "rsa",
        algorithm: str = "RS256",
        header: Json | None = None,
        **claims: Any,
    ) -> str:
        import jwt

        headers = ({"kid": key_id} if key_id is not None else {}) | (header or {})
        return jwt.encode(
            self.claims(**claims), key or self.keys[key_id or "rsa"], algorithm=algorithm, headers=headers
        )


def forge(header: Json, claims: Json, signature: bytes = b"") -> str:
    """A token as no library would write it."""
    parts = [encode(json.dumps(part).encode()) for part in (header, claims)]
    return ".".join([*parts, encode(signature)])


@contextmanager
def running_provider() -> Iterator[Provider]:
    provider = Provider("", {"rsa": make_rsa(), "ec": ec.generate_private_key(ec.SECP256R1())})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.requests.append(self.path)
            if provider.is_hanging.is_set():
                released.wait(20)
            document = provider.documents.get(self.path)
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(200 if document is not None else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    released = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    provider.publish_keys()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        released.set()
        server.shutdown()
        thread.join()
        server.server_close()
