"""The web UI through the service proxy of a real API server, as `kubectl proxy`, Lens and links in portals reach it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.kubectl.site import ADDRESS, running_site
from tests.kubernetes.cluster import Cluster
from tests.local.processes import Program
from tests.web.browser import visit
from tests.web.conftest import TOKENS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
RULE = {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get", "create", "delete"]}
ADDRESSES = ("#/", "#/workloads", "#/teams", "#/nodes", "#/actions", "#/sources", "#/wall")


@contextmanager
def running_kubectl_proxy(kubectl: Path, kubeconfig: Path) -> Iterator[str]:
    """Its address. It sends the credential of the kubeconfig, as every portal does with its own."""
    command = [kubectl / "kubectl", "proxy", "--port=0", f"--kubeconfig={kubeconfig}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://{process.stdout.readline().split()[-1]}"
        finally:
            process.terminate()


def test_the_web_ui_works_through_the_service_proxy(
    browser: Browser, demo: Program, kubernetes: Cluster, tmp_path: Path
):
    with running_site(kubernetes, tmp_path) as site:
        site.proxy.targets[f"{ADDRESS}:8080"] = "127.0.0.1", urlsplit(demo.url).port or 0
        name = "http:gpusteward-analyzer:http"
        _, kubeconfig = site.add_person(namespace=site.namespace, rules=[{**RULE, "resourceNames": [name]}])
        prefix = f"/api/v1/namespaces/{site.namespace}/services/{name}/proxy"
        with (
            running_kubectl_proxy(site.kubectl, kubeconfig) as url,
            visit(browser, url, base_path=f"{prefix}/ui/", expect_failures=True) as visitor,
        ):
            page = visitor.open("#/teams")  # nobody is known here, whoever the API server knows
            expect(page.get_by_role("heading", name="Sign in to gpusteward")).to_be_visible()
            page.get_by_label("Token").fill(TOKENS["operator"])
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("h1")).to_contain_text("on idle GPUs")
            (cookie,) = page.context.cookies()
            assert (cookie["path"], cookie["httpOnly"], cookie["sameSite"]) == (f"{prefix}/api/v1", True, "Strict")
            visitor.failures.clear()
            for address in ADDRESSES:
                page = visitor.open(address)
                assert page.locator(".state-error, .state-forbidden, .page-note").count() == 0, address
            paths = page.evaluate("performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)")
            assert [path for path in paths if not path.startswith(f"{prefix}/")] == []
            assert visitor.failures == []
            page = visitor.open("#/sign-in")
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_role("heading", name="Sign in to gpusteward")).to_be_visible()
            assert page.context.cookies() == []
