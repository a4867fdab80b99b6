"""Examples in the documents work: YAML, CSV and PromQL, each tested with the program that reads it."""

import base64
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from gpusteward.agent.field_list import parse_fields
from gpusteward.agent.http.server import serve
from gpusteward.agent.settings.table import read_settings
from gpusteward.analyzer.api.http.roles import parse_tokens
from gpusteward.analyzer.notify.channels import build_senders
from gpusteward.analyzer.notify.control_webhook import KEY_HEADER, SIGNATURE_HEADER, sign
from gpusteward.analyzer.settings.effective import KNOWN
from gpusteward.analyzer.settings.fields import find_secret_files
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.http_server.web_config import WebConfigFile
from tests.agent import test_prometheus
from tests.agent.http.clients import LOOPBACK, FakeContent
from tests.agent.test_agent_process import RunningAgent, is_ready, running
from tests.documents import Block, list_blocks
from tests.yaml_texts import read_all_yaml, read_yaml

pytestmark = pytest.mark.slow

PROMQL = list_blocks("promql")
YAML = list_blocks("yaml")


def find_yaml(key: str) -> list[object]:
    """The values under a top-level key of the YAML blocks that have it."""
    return [document[key] for block in YAML for document in read_all_yaml(block.text) if key in document]


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningAgent]:
    with running("--source=simulated", "--node-name=gpu-node-1", env=dict(os.environ)) as one:
        one.wait_for(is_ready)
        yield one


query = test_prometheus.query  # the fixture: a real Prometheus, here on the agent above


@pytest.fixture(scope="module")
def promtool(component: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    folder = tmp_path_factory.mktemp("promtool")

    def run(*words: str, document: object) -> str:
        """Run promtool on a document; return its output if it succeeds."""
        path = folder / "document.yml"
        path.write_text(json.dumps(document))
        command = [component("promtool"), *words, str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, timeout=30)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.mark.parametrize("block", YAML, ids=str)
def test_every_yaml_block_can_be_read(block: Block):
    assert all(read_all_yaml(block.text))


@pytest.mark.parametrize("block", list_blocks("csv"), ids=str)
def test_every_csv_block_is_a_field_list_that_is_served_in_full(block: Block):
    fields = parse_fields(block.text, where=block.document)
    assert fields.metrics
    assert fields.unserved == ()


def test_arguments_in_yaml_are_valid_flags_of_the_agent():
    for command, *flags in find_yaml("args"):
        assert command == "agent"
        read_settings(flags, {})


@pytest.mark.parametrize("block", PROMQL, ids=str)
def test_every_expression_is_promql(promtool: Callable[..., str], block: Block):
    rules = [{"record": "x", "expr": block.text}]
    promtool("check", "rules", document={"groups": [{"name": "docs", "rules": rules}]})


@pytest.mark.parametrize("block", list_blocks("promql", "docs/how-to/questions.md"), ids=str)
def test_every_documented_query_has_a_result_on_a_simulated_node(query: Callable[[str], list], block: Block):
    """A rate needs a second sample, and a subquery of `1m` the end of a minute, so it may take a moment."""
    deadline = time.monotonic() + 80
    while not query(block.text) and "may-be-empty" not in block.mark:
        assert time.monotonic() < deadline, "no result in 80 s"
        time.sleep(0.2)


def test_results_by_namespace_have_the_namespace_label(query: Callable[[str], list]):
    for block in list_blocks("promql", "docs/how-to/questions.md"):
        if block.text.startswith("sum by (namespace)"):
            assert all(row["metric"].get("namespace") for row in query(block.text)), block.text


def test_the_documented_scrape_job_is_valid(promtool: Callable[..., str]):
    """Debian's Prometheus is built without the discovery of Kubernetes: that one key cannot be tried."""
    ((job,),) = find_yaml("scrape_configs")
    assert job.pop("kubernetes_sd_configs")
    assert job["honor_labels"] is True
    promtool("check", "config", "--syntax-only", document={"scrape_configs": [job]})


def test_the_web_config_serves_https_with_the_password(tmp_path: Path):
    (block,) = (block for block in YAML if "tls_server_config" in block.text)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    (tmp_path / "web.yaml").write_text(block.text)
    server = serve(FakeContent(), LOOPBACK, web=WebConfigFile(tmp_path / "web.yaml").current)
    try:
        check_password(f"{server.url}/metrics", authority)
    finally:
        server.close()


def check_password(url: str, authority: trustme.CA) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    password = base64.b64encode(b"prometheus:change-me").decode()
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {password}"})
    with urllib.request.urlopen(request, timeout=5, context=context) as response:
        assert response.status == 200
    with pytest.raises(urllib.error.HTTPError, match="401") as refusal:
        urllib.request.urlopen(url, timeout=5, context=context)
    refusal.value.close()


CHOSEN = [
    block
    for block in YAML
    if block.mark != "values"  # of the chart
    and all(key in Settings.model_fields for each in read_all_yaml(block.text) for key in each)
]


@pytest.mark.parametrize("block", CHOSEN, ids=str)
def test_documented_settings_are_valid(tmp_path: Path, block: Block):
    """All keys are known and all channels can be delivered to."""
    path = tmp_path / "config.yaml"
    path.write_text(block.text)
    file = SettingsFile(Flags(config=path), {}, directory=tmp_path)
    assert [key for key in file.effective.given if key not in KNOWN] == []
    build_senders(file.settings.control, file.settings.notify)
    for section, keys in read_yaml(block.text).items():
        files = {path.rpartition(".")[2] for path in find_secret_files(KNOWN) if path.startswith(f"{section}.")}
        assert set(keys) <= type(getattr(file.settings, section)).model_fields.keys() | files


def test_the_guides_show_every_section_a_site_has_to_choose():
    shown = {key for block in CHOSEN for key in read_yaml(block.text)}
    assert shown >= {"prometheus", "scrape", "ledger", "prices", "notify", "control", "alertmanager"}


def test_the_documented_tokens_have_valid_roles():
    (block,) = (block for block in YAML if block.text.startswith("viewer:"))
    assert {role.value for role in parse_tokens(block.text, where="docs").values()} == {"viewer", "operator"}


@pytest.mark.parametrize("block", list_blocks("python"), ids=str)
def test_the_documented_check_accepts_a_genuine_call_and_rejects_forged_and_old_ones(block: Block):
    names: dict[str, Callable[..., bool]] = {}
    exec(block.text, names)  # our own document, as a reader would run it
    is_genuine = names["is_genuine"]
    body, now = b'{"score": 5.2}', time.time()
    headers = {KEY_HEADER: "abc", SIGNATURE_HEADER: sign("secret", body, key="abc", at=now)}
    assert is_genuine(headers, body, "secret")
    assert not is_genuine(headers, body + b" ", "secret")
    assert not is_genuine(headers, body, "guess")
    assert not is_genuine({**headers, KEY_HEADER: "abd"}, body, "secret")
    old = {KEY_HEADER: "abc", SIGNATURE_HEADER: sign("secret", body, key="abc", at=now - 600)}
    assert not is_genuine(old, body, "secret")
