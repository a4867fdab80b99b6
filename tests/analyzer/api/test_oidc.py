"""Tokens of an OpenID Connect provider: what is refused comes first. The provider is a real server on loopback."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from gpusteward.analyzer.api.http.jwt_tokens import (
    KEEP_SECONDS,
    LONGEST_KEEP_SECONDS,
    RETRY_SECONDS,
    InvalidTokenError,
    KeysUnavailableError,
    SigningKey,
    SigningKeys,
    parse_keys,
    read_issuer,
    read_keys,
)
from gpusteward.analyzer.settings.auth import OidcSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.cli.main import main
from tests.analyzer.api.oidc_provider import AUDIENCE, Provider, encode, forge, make_rsa, publish, running_provider
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

RULES: list[dict[str, Any]] = [
    {"groups": ["team-vision"], "role": "viewer", "namespaces": ["vision"]},
    {"groups": ["admins"], "role": "admin"},
    {"users": ["ann@example.com"], "role": "operator"},
]


def make_settings(provider: Provider, **oidc: Any) -> Settings:
    auth = {"oidc": {"issuer": provider.url, "audience": [AUDIENCE], **oidc}, "rules": RULES}
    return Settings.model_validate({"auth": auth})


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
def api(provider: Provider) -> Iterator[Api]:
    with running_api(small_result(), settings=make_settings(provider)) as running:
        yield running


def me(api: Api, token: str) -> dict[str, Any]:
    response = api.get("/api/v1/me", token=token)
    assert response.status == 200, response.body
    found: dict[str, Any] = response.json
    return found


def public_pem(provider: Provider) -> bytes:
    key = provider.keys["rsa"].public_key()
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def make_attacks(provider: Provider) -> dict[str, str]:
    """By name, what must not be accepted. Each asks for the role admin."""
    admin = provider.claims(groups=["admins"])
    own, stranger = {"groups": ["admins"]}, make_rsa()
    good = provider.sign(**own)
    head, body, signature = good.split(".")
    confused = forge({"alg": "HS256", "kid": "rsa"}, admin).rsplit(".", 1)[0]
    pem = public_pem(provider)
    jwk = json.dumps(publish(provider.keys["rsa"], "rsa")).encode()
    now = int(time.time())
    return {
        "no signature": forge({"alg": "none"}, admin),
        "no signature, other case": forge({"alg": "nOnE", "kid": "rsa"}, admin),
        "empty signature": f"{head}.{body}.",
        "changed claims": f"{head}.{encode(json.dumps(admin | {'sub': 'root'}).encode())}.{signature}",
        "public key as secret": f"{confused}.{encode(hmac.digest(pem, confused.encode(), hashlib.sha256))}",
        "public JWK as secret": f"{confused}.{encode(hmac.digest(jwk, confused.encode(), hashlib.sha256))}",
        "own key": provider.sign(key=stranger, **own),
        "own key in the header": provider.sign(key=stranger, header={"jwk": publish(stranger, "rsa")}, **own),
        "own address in the header": provider.sign(key=stranger, header={"jku": "http://127.0.0.1:9/keys"}, **own),
        "unknown key": provider.sign(key=stranger, key_id="other", **own),
        "key id of another type": provider.sign(key=provider.keys["rsa"], key_id="ec", **own),
        "key id that is no text": forge({"alg": "RS256", "kid": ["rsa"]}, admin, b"x"),
        "algorithm that is not accepted": provider.sign(algorithm="RS512", **own),
        "another audience": provider.sign(aud="grafana", **own),
        "no audience": provider.sign(aud=None, **own),
        "another issuer": provider.sign(iss="https://evil.example", **own),
        "issuer with a slash": provider.sign(iss=f"{provider.url}/", **own),
        "no issuer": provider.sign(iss=None, **own),
        "expired": provider.sign(exp=now - 31, **own),
        "no end": provider.sign(exp=None, **own),
        "not valid yet": provider.sign(nbf=now + 60, **own),
        "critical extension": provider.sign(header={"crit": ["exp"], "exp": 1}, **own),
        "logout token": provider.sign(header={"typ": "logout+jwt"}, **own),
        "user that is a number": provider.sign(sub=None, **own),
        "user with a line end": provider.sign(sub="ann\nroot", **own),
        "groups that are an object": provider.sign(groups={"admins": True}),
        "group with a line end": provider.sign(groups=["x\nadmins"]),
        "nested header": encode(b"[" * 6000) + ".e30.x",
        "not a token": "a.b.c",
        "dots": "..",
    }


def test_never_accepts(api: Api, provider: Provider):
    """One test for all: making keys takes longer than the requests."""
    for name, token in make_attacks(provider).items():
        response = api.get("/api/v1/me", token=token)
        assert response.status == 401, name
        assert token not in response.body.decode()
    assert api.dependencies.refusals.counts["invalid_token"] == len(make_attacks(provider))
    assert api.get("/api/v1/me", token=provider.sign(padding="x" * 7000, groups=["admins"])).status == 431
    with pytest.raises(InvalidTokenError, match="too long"):
        read_issuer(provider.sign(padding="x" * 7000))


@pytest.mark.parametrize(
    "groups", [["team-vision,admins"], "team-vision,admins", ["team-vision admins"], ["ADMINS"], []]
)
def test_the_name_of_a_group_is_never_split_or_changed(api: Api, provider: Provider, groups: object):
    assert api.get("/api/v1/me", token=provider.sign(groups=groups)).status == 403


def test_a_token_gives_the_role_and_the_namespaces_of_its_groups(api: Api, provider: Provider):
    lead = me(api, provider.sign(groups=["team-vision", "others"]))
    assert (lead["user"], lead["role"], lead["namespaces"], lead["method"]) == ("ann", "viewer", ["vision"], "oidc")
    token = provider.sign(
        groups="team-vision", aud=["grafana", AUDIENCE], exp=int(time.time()) - 10, header={"typ": "at+jwt"}
    )
    assert {row["namespace"] for row in api.get("/api/v1/workloads", token=token).json["items"]} == {"vision"}
    assert me(api, provider.sign(key_id="ec", algorithm="ES256", groups=["admins"]))["role"] == "admin"
    assert me(api, provider.sign(groups=["admins"], key_id=None))["role"] == "admin"
    assert api.post("/analyze", token=provider.sign(groups=["admins"])).status == 200
    assert api.post("/analyze", token=provider.sign(groups=["admins"]), Origin="https://evil.example").status == 403
    assert api.post("/analyze", token=provider.sign(groups=["team-vision"])).status == 403


def test_an_email_address_counts_only_if_it_is_verified(provider: Provider):
    settings = make_settings(provider, user_claim="email", groups_claim="realm_access.roles")
    with running_api(small_result(), settings=settings) as api:
        assert me(api, provider.sign(email="ann@example.com", email_verified=True))["role"] == "operator"
        admin = provider.sign(email="a@b", email_verified=True, realm_access={"roles": ["admins"]})
        assert me(api, admin)["role"] == "admin"
        for claim in ({"email_verified": False}, {"email_verified": "false"}, {"email_verified": 0}, {}):
            token = provider.sign(email="ann@example.com", **claim)
            assert api.get("/api/v1/me", token=token).status == 401


def test_the_command_line_takes_a_long_token_and_shows_the_own_namespace(
    api: Api, provider: Provider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    groups = ["team-vision", *(f"some-other-group-of-the-company-{number}" for number in range(150))]
    (tmp_path / "token").write_text(token := provider.sign(groups=groups))
    assert len(token) > 4096
    arguments = ["--server", api.url, "--token-file", str(tmp_path / "token")]
    assert main(["idle", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "vision" in printed
    assert "chat" not in printed


def test_unknown_key_ids_do_not_flood_the_provider(provider: Provider):
    with running_api(small_result(), settings=make_settings(provider)) as api:
        provider.requests.clear()
        key = make_rsa()
        for number in range(50):
            assert api.get("/api/v1/me", token=provider.sign(key=key, key_id=f"invented-{number}")).status == 401
        assert provider.requests == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.slow
def test_a_provider_that_hangs_costs_its_own_tokens_only():
    with running_provider() as provider:
        provider.is_hanging.set()
        with running_api(small_result(), settings=make_settings(provider)) as api:
            started = time.monotonic()
            statuses = asyncio.run(_ask_while_waiting(api, provider.sign(groups=["admins"])))
            assert statuses == (503, 200)
            assert time.monotonic() - started < 15
            again = time.monotonic()
            assert api.get("/api/v1/me", token=provider.sign()).status == 503  # at once
            assert time.monotonic() - again < 3


async def _ask_while_waiting(api: Api, token: str) -> tuple[int, int]:
    """The status for a token of the provider, and that of a request that ends before it."""
    waiting = asyncio.create_task(asyncio.to_thread(api.get, "/api/v1/me", token=token))
    await asyncio.sleep(0.2)
    other = await asyncio.to_thread(api.get, "/results")
    assert not waiting.done()
    return (await waiting).status, other.status


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def find(keys: SigningKeys, key_id: str | None = "a") -> SigningKey | None:
    async def ask() -> SigningKey | None:
        found = await keys.find(key_id, "RS256")
        await asyncio.sleep(0.05)  # a read that nobody waits for ends too
        return found

    return asyncio.run(ask())


def test_keys_are_read_again_after_a_while_and_kept_while_the_provider_is_down():
    clock, answers = Clock(), [[key("a")]]
    reads = 0

    def read() -> list[SigningKey]:
        nonlocal reads
        reads += 1
        if not answers:
            raise KeysUnavailableError("down")
        return answers[-1]

    keys = SigningKeys(read, issuer="a", clock=clock)
    assert (find(keys), find(keys), reads) == (key("a"), key("a"), 1)
    assert (find(keys, "b"), reads) == (None, 1)  # a moment ago
    clock.now += RETRY_SECONDS
    answers.append([key("a"), key("b")])
    assert (find(keys, "b"), reads) == (key("b"), 2)
    answers.clear()
    clock.now += KEEP_SECONDS + 1
    assert (find(keys, "b"), reads) == (key("b"), 3)
    clock.now += LONGEST_KEEP_SECONDS
    with pytest.raises(KeysUnavailableError):
        find(keys, "b")


def key(name: str) -> SigningKey:
    return SigningKey(name, frozenset({"RS256"}), None)


def test_a_token_without_a_key_id_needs_the_only_key():
    keys = SigningKeys(lambda: [key("a"), key("b")], issuer="a")
    assert find(keys, None) is None
    assert find(SigningKeys(lambda: [key("a")], issuer="a"), None) == key("a")


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_only_public_keys_for_signatures_are_used(provider: Provider):
    good = publish(provider.keys["rsa"], "good")
    edwards = publish(ed25519.Ed25519PrivateKey.generate(), "edwards")
    found = parse_keys(
        jwks(
            good,
            good | {"kid": "ps", "alg": "PS256"},
            edwards,
            good | {"kid": "encryption", "use": "enc"},
            good | {"kid": "secret", "kty": "oct", "k": "c2VjcmV0"},
            good | {"kid": "confused", "alg": "HS256"},
            publish(make_rsa(1024), "short"),
            publish(ec.generate_private_key(ec.SECP256K1()), "other-curve", crv="secp256k1"),
            good | {"kid": "broken", "n": "!"},
            good | {"kid": 7},
        )
    )
    assert [each.id for each in found] == ["good", "ps", "edwards"]
    assert "RS256" in found[0].algorithms
    assert [each.algorithms for each in found[1:]] == [frozenset({"PS256"}), frozenset({"EdDSA"})]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [1]}', b"x" * 300_000]
)
def test_anything_but_keys_is_an_error(text: bytes):
    with pytest.raises((KeysUnavailableError, ValueError)):
        parse_keys(text)


def test_keys_come_from_a_file_where_the_provider_cannot_be_reached(provider: Provider, tmp_path: Path):
    (tmp_path / "keys.json").write_bytes(jwks(publish(provider.keys["rsa"], "rsa")))
    settings = make_settings(provider, jwks_url=f"file://{tmp_path / 'keys.json'}")
    provider.requests.clear()
    with running_api(small_result(), settings=settings) as api:
        assert me(api, provider.sign(groups=["admins"]))["role"] == "admin"
    assert provider.requests == []


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example", "jwks_uri": "KEYS"},
        {"issuer": "ISSUER", "jwks_uri": "http://evil.example/keys"},
        {"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "ISSUER"},
        ["ISSUER"],
        b"x" * 300_000,
    ],
)
def test_a_discovery_document_of_somebody_else_is_refused(document: Any):
    with running_provider() as provider:
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        text = text.replace(b"ISSUER", provider.url.encode()).replace(b"KEYS", f"{provider.url}/keys".encode())
        provider.documents["/.well-known/openid-configuration"] = text
        with pytest.raises(KeysUnavailableError):
            read_keys(OidcSettings(issuer=provider.url, audience=["a"]))


def test_nothing_blocks_the_event_loop_while_a_token_is_verified(provider: Provider):
    from blockbuster import blockbuster_ctx

    from gpusteward.analyzer.api.http.token_verifiers import OidcVerifier

    settings = OidcSettings(issuer=provider.url, audience=[AUDIENCE])
    with blockbuster_ctx():
        person = asyncio.run(OidcVerifier().verify(provider.sign(groups=["a"]), settings))
    assert (person.user, person.groups) == ("ann", ("a",))
