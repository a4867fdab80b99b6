"""The service proxy of a real API server as a door for portals: every read, below its prefix, with our token only.

The API server checks the right to `services/proxy` and removes `Authorization`: the analyzer sees nobody.
"""

import json
import re
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from mcp.client.stdio import StdioServerParameters

from gpusteward.analyzer.api.build import describe_api
from gpusteward.analyzer.api.http.static_files import UiBundle
from gpusteward.analyzer.settings.settings import Settings
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.mcp_clients import ask, list_calls
from tests.analyzer.api.sample_results import TRAINER
from tests.analyzer.api.server import Response
from tests.analyzer.api.test_questions import check
from tests.cli.kubectl.site import Site, running_site
from tests.documents import ROOT
from tests.kubernetes.cluster import Account, Cluster

pytestmark = pytest.mark.slow
HEADER = "X-Gpusteward-Authorization"
TOKENS = {"viewer": "viewer0123456789", "operator": "operator0123456789"}
OPEN = {"/health", "/healthz", "/livez", "/readyz", "/api/v1/session", "/docs", "/ui", "/ui/"}
"""What everybody may ask who reaches the port: it shows nothing of the cluster."""
VALUES = {"kind": "Job", "namespace": "vision", "name": "trainer", "node": "n1", "action_id": "a1", "number": "1"}
LINK = re.compile(r'(?:href|src|action)="([^"]*)"')
FORGED = (
    {"X-Forwarded-User": "root", "X-Forwarded-Groups": "platform"},
    {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"},
    {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1;host=localhost"},
    {"X-Forwarded-Host": "localhost", "X-Forwarded-Proto": "http", "Via": "1.1 localhost"},
    {"X-Gpusteward-Authorization": "Bearer forged-token-0123456789"},
    {"X-Gpusteward-Authorization": "Basic cm9vdDpyb290"},
)


def list_reads() -> list[str]:
    """Every path of the API document that is read, with values of its parameters."""
    paths = [path for path, item in describe_api()["paths"].items() if "get" in item]
    queries = {"/api/v1/workloads/ended": "?name=trainer", "/api/v1/events": None}
    filled = {path: re.sub(r"{(\w+)}", lambda found: VALUES[found[1]], path) for path in paths}
    return [f"{text}{queries.get(path) or ''}" for path, text in filled.items() if queries.get(path, "") is not None]


@pytest.fixture(scope="module")
def site(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    tokens = "\n".join(f"{role}: {token}" for role, token in TOKENS.items())
    auth = {"rules": [{"groups": ["platform"], "role": "admin"}], "proxy": {"addresses": ["198.51.100.99"]}}
    settings = Settings.model_validate(
        {"server": {"tokens": tokens}, "auth": {**auth, "kubernetes": {"enabled": True}}}
    )
    components = {"settings": settings, "reclaim": FakeReclaim([TRAINER]), "ui": UiBundle()}
    with running_site(kubernetes, tmp_path_factory.mktemp("portal"), **components) as running:
        yield running


@pytest.fixture(scope="module")
def person(site: Site) -> Account:
    """Somebody with the Role of the documentation."""
    text = (ROOT / "docs/how-to/portals.md").read_text(encoding="utf-8")
    (role,) = (
        each for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) for each in yaml.safe_load_all(block)
    )
    site.cluster.apply({**role, "metadata": {**role["metadata"], "namespace": site.namespace}})
    account, _ = site.add_person(role["metadata"]["name"])
    return account


def prefix_of(site: Site, name: str = "http:gpusteward-analyzer:http") -> str:
    return f"/api/v1/namespaces/{site.namespace}/services/{name}/proxy"


def send(
    site: Site, person: Account, path: str, *, method: str = "GET", body: object = None, **headers: str
) -> Response:
    """Through the API server, with the person's own credential. Redirects are not followed."""
    token = (person.folder / "token").read_text()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(site.cluster.url + path, method=method, headers=given)
    request.add_header("Authorization", f"Bearer {token}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    context = ssl.create_default_context(cafile=str(site.cluster.ca_path))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirects)
    try:
        with opener.open(request, timeout=30) as response:
            return Response(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Response(error.code, error.headers, error.read())


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def read(site: Site, person: Account, path: str, **headers: str) -> Response:
    return send(site, person, prefix_of(site) + path, **headers)


def bearer(role: str) -> Mapping[str, str]:
    return {HEADER: f"Bearer {TOKENS[role]}"}


@pytest.mark.parametrize("path", list_reads())
def test_every_read_is_the_same_as_without_the_proxy(site: Site, person: Account, path: str):
    through = read(site, person, path, **bearer("operator"))
    direct = site.api.get(path, token=TOKENS["operator"])
    assert (through.status, through.headers.get_content_type()) == (direct.status, direct.headers.get_content_type())
    assert through.status in (200, 404, 307)
    if through.headers.get_content_type() == "application/json" and through.status == 200:
        assert set(through.json) == set(direct.json) if isinstance(direct.json, dict) else True


@pytest.mark.parametrize("path", list_reads())
def test_nobody_is_answered_because_they_came_through_the_proxy(site: Site, person: Account, path: str):
    refused = read(site, person, path)
    assert refused.status in ((200, 307) if path in OPEN else (401,)), refused.body


@pytest.mark.parametrize("forged", FORGED, ids=lambda each: next(iter(each)))
def test_never_believes_a_forged_header(site: Site, person: Account, forged: dict[str, str]):
    for path in ("/api/v1/me", "/api/v1/workloads", "/metrics", "/results"):
        assert read(site, person, path, **forged).status in (401, 403)
    if HEADER in forged:
        return
    found = read(site, person, "/api/v1/me", **forged, **bearer("viewer"))
    assert (found.status, found.json.get("role")) in ((200, "viewer"), (403, None))
    settings = read(site, person, "/api/v1/settings", **forged, **bearer("viewer"))
    assert settings.status == 403


def test_two_credentials_are_refused(site: Site, person: Account):
    connection = f"{site.api.url}/api/v1/me"
    request = urllib.request.Request(connection, headers={**bearer("viewer"), "Authorization": "Bearer " + "x" * 20})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10)


def test_the_api_server_lets_nobody_through_without_the_role_or_to_another_service(site: Site, person: Account):
    stranger, _ = site.add_person()
    assert read(site, stranger, "/api/v1/overview", **bearer("viewer")).status == 403
    other = prefix_of(site, "http:gpusteward-analyzer:metrics")
    assert send(site, person, f"{other}/api/v1/overview", **bearer("viewer")).status == 403
    assert send(site, person, f"/api/v1/namespaces/{site.namespace}/secrets").status == 403


def test_pages_and_redirects_stay_below_the_prefix(site: Site, person: Account):
    for path in ("/ui", "/results/", "/api/v1/workloads/?limit=1"):
        found = read(site, person, path, **bearer("viewer"))
        direct = site.api.get(path, token=TOKENS["viewer"])
        assert (found.status, direct.status) == (307, 307)
        assert not direct.headers["location"].startswith(("/", "http"))
        assert found.headers["location"] == direct.headers["location"]
    for path in ("/docs", "/ui/"):
        links = [LINK.findall(page.body.decode()) for page in (read(site, person, path), site.api.get(path))]
        assert len(links[0]) > 1
        assert links[0] == links[1]  # the API server had nothing to rewrite
        assert not any(each.startswith("/") for each in links[0])


def test_a_browser_signs_in_below_the_prefix_and_its_cookie_stays_there(site: Site, person: Account):
    before = read(site, person, "/api/v1/session")
    assert (before.status, before.json["signed_in"], before.json["may_read"]) == (200, False, False)
    body, path = {"token": TOKENS["viewer"]}, f"{prefix_of(site)}/api/v1/session"
    opened = send(site, person, path, method="POST", body=body)
    cookie = opened.headers["set-cookie"]
    assert (opened.status, "path=" in cookie.lower(), "SameSite=Strict" in cookie) == (200, False, True)
    session = {"Cookie": cookie.partition(";")[0]}
    assert read(site, person, "/api/v1/workloads", **session).status == 200
    ended = send(*(site, person, path), method="DELETE", **session, **{"X-Gpusteward-CSRF": str(opened.json["csrf"])})
    assert ended.status == 200
    assert read(site, person, "/api/v1/workloads", **session).status == 401


def test_events_arrive_as_they_happen(site: Site, person: Account):
    token = (person.folder / "token").read_text()
    headers = {"Authorization": f"Bearer {token}", **bearer("viewer")}
    request = urllib.request.Request(f"{site.cluster.url}{prefix_of(site)}/api/v1/events", headers=headers)
    context = ssl.create_default_context(cafile=str(site.cluster.ca_path))
    with urllib.request.urlopen(request, timeout=10, context=context) as stream:
        assert stream.headers.get_content_type() == "text/event-stream"
        assert any(stream.readline().startswith(b"data: ") for _ in range(5))


def test_a_service_account_of_one_namespace_sees_that_namespace(site: Site, person: Account):
    if not site.cluster.exists({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}):
        site.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
    site.add_viewer_account("vision")
    token = site.create_token("vision", "gpusteward-viewer")
    found = read(site, person, "/api/v1/workloads", **{HEADER: f"Bearer {token}"}).json["items"]
    assert {each["namespace"] for each in found} == {"vision"}


def test_an_assistant_needs_a_kubeconfig_only(site: Site):
    """`kubectl gpusteward mcp`: the questions of assistants through the same door."""
    _, kubeconfig = site.add_person("gpusteward-viewer")
    arguments = ["-m", "gpusteward.cli.kubectl.main", "mcp", "--kubeconfig", str(kubeconfig)]
    server = StdioServerParameters(
        command=sys.executable,
        args=[*arguments, "--analyzer", site.namespace],
        env={"PATH": f"{site.kubectl}:{Path('/usr/bin')}:/bin", "HOME": str(site.folder)},
    )
    answers = [check(each) for each in ask(server, list_calls("trainer"))]
    assert answers[0]["summary"]["workloads"] > 0
    assert (answers[0]["link"], "server.public_url" in answers[0]["null_because"]["link"]) == (None, True)
