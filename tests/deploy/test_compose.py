"""compose.yaml without a Docker engine: its files are valid and its programs, with its commands, work together."""

import json
import os
import re
import subprocess
import time
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.node_source import SimulatedSource
from gpusteward.agent.settings.table import read_settings
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import flags_from
from gpusteward.cli.commands.serve import build_parser
from tests.agent.test_agent_process import free_port, running
from tests.analyzer.engines import RunningEngine, run_engine
from tests.analyzer.serve_process import RunningServe, running_serve
from tests.documents import ROOT
from tests.yaml_texts import read_yaml

pytestmark = pytest.mark.slow

Json = dict[str, Any]
COMPOSE: Json = read_yaml((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Json] = COMPOSE["services"]
AGENTS = [name for name in SERVICES if name.startswith("agent-")]
DOCKERFILE = (ROOT / "deploy/images/Dockerfile").read_text()
PROMETHEUS: Json = read_yaml((ROOT / "deploy/compose/prometheus.yaml").read_text())


def list_mounts(service: str) -> dict[str, str]:
    """What is mounted at each path of the container: a path of the repository, or the name of a volume."""
    words = [each.split(":") for each in SERVICES[service].get("volumes", [])]
    return {target: source for source, target, *_ in words}


def list_mounted_files() -> list[Path]:
    sources = [source for name in SERVICES for source in list_mounts(name).values() if source.startswith("./")]
    paths = [ROOT / source for source in sources]
    return sorted({file for path in paths for file in ([path] if path.is_file() else path.iterdir())})


def test_what_is_mounted_exists_and_is_read_only_or_a_declared_volume():
    assert len(list_mounted_files()) >= 10
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            source, *_, mode = mount.split(":")
            if source.startswith("./"):
                assert (ROOT / source).exists(), f"{name}: {source}"
                assert mode == "ro", mount
            else:
                assert source in COMPOSE["volumes"], f"{name}: {source}"


@pytest.mark.parametrize("path", list_mounted_files(), ids=lambda path: path.name)
def test_every_mounted_file_can_be_parsed(path: Path):
    read = json.loads if path.suffix == ".json" else yaml.safe_load
    assert read(path.read_text())


def test_every_port_is_bound_to_this_machine_and_every_program_is_confined():
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_built_images_are_targets_of_the_dockerfile_with_its_ports():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in (*AGENTS, "analyzer"):
        build = SERVICES[name]["build"]
        assert (ROOT / build["dockerfile"]).exists()
        assert f"FROM base AS {build['target']}\n" in DOCKERFILE
        assert SERVICES[name]["image"] == f"gpusteward-{build['target']}:{version}"
    targets = [target for job in PROMETHEUS["scrape_configs"] for target in job["static_configs"][0]["targets"]]
    assert targets == [*(f"{name}:9400" for name in AGENTS), "analyzer:8080"]


def test_the_agents_accept_their_commands_and_are_different_nodes():
    settings = [read_settings(SERVICES[name]["command"][1:], {}) for name in AGENTS]
    nodes = [SimulatedSource(each.node_name, loads=each.simulate_loads) for each in settings]
    snapshots = [node.read(frozenset(), now=1e9, runner=CollectorRunner()) for node in nodes]
    uuids = [{each.gpu.uuid for each in snapshot.readings} for snapshot in snapshots]
    assert len({each.node_name for each in settings}) == 3
    assert len(set.union(*uuids)) == sum(map(len, uuids)) > 3


def test_the_analyzer_accepts_its_command(tmp_path: Path):
    flags = flags_from(build_parser().parse(SERVICES["analyzer"]["command"][1:]))
    settings = SettingsFile(flags, {}, directory=tmp_path).settings
    assert str(settings.ledger.directory) in list_mounts("analyzer")
    assert urllib.parse.urlsplit(settings.prometheus.url).hostname in SERVICES


def test_grafana_is_provisioned_from_the_mounted_files():
    mounts = list_mounts("grafana")
    kinds = {Path(target).parent.name: ROOT / source for target, source in mounts.items() if "/provisioning/" in target}
    (source,) = read_yaml(kinds["datasources"].read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = read_yaml(kinds["dashboards"].read_text())["providers"]
    dashboards = ROOT / mounts[provider["options"]["path"]]
    assert len(list(dashboards.glob("*.json"))) >= 6


def write_config(folder: Path, addresses: dict[str, str]) -> Path:
    """The configuration of Prometheus with the paths and addresses of this machine."""
    text = (ROOT / "deploy/compose/prometheus.yaml").read_text()
    for target, source in list_mounts("prometheus").items():
        text = text.replace(f"{target}/", f"{ROOT / source}/")
    for name, address in addresses.items():
        text = re.sub(rf"\b{name}:\d+", address, text)
    path = folder / "prometheus.yaml"
    path.write_text(text)
    return path


def test_promtool_accepts_the_configuration_with_the_rules(component: Callable[[str], str], tmp_path: Path):
    command = [component("promtool"), "check", "config", str(write_config(tmp_path, {}))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rule files found" in done.stdout


@pytest.fixture(scope="module")
def stack(
    component: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningEngine, RunningServe]]:
    """All programs but Grafana, with the commands of compose.yaml and ports of their own."""
    folder = tmp_path_factory.mktemp("compose")
    with ExitStack() as context:
        addresses = {"analyzer": f"127.0.0.1:{free_port()}"}
        for name in AGENTS:
            agent = context.enter_context(running(*SERVICES[name]["command"][1:], env=dict(os.environ)))
            addresses[name] = agent.url.removeprefix("http://")
        address = f"127.0.0.1:{free_port()}"
        flags = [f"--config.file={write_config(folder, addresses)}", f"--storage.tsdb.path={folder / 'data'}"]
        others = [flag for flag in SERVICES["prometheus"]["command"] if "retention" in flag]
        command = [component("prometheus"), *flags, *others, f"--web.listen-address={address}", "--log.level=error"]
        engine = context.enter_context(run_engine(command, f"http://{address}", "/-/ready"))
        words = [word.replace("prometheus:9090", address) for word in SERVICES["analyzer"]["command"][1:]]
        words = [word.replace("/var/lib/gpusteward", str(folder)) for word in words]
        mine = [f"--address={addresses['analyzer']}", "--interval=2"]
        yield engine, context.enter_context(running_serve(folder, *words, *mine))


def test_the_programs_work_together(stack: tuple[RunningEngine, RunningServe]):
    engine, analyzer = stack
    analyzer.wait_for(lambda it: len(list_nodes(it)) == 3, seconds=60)
    deadline = time.monotonic() + 30
    while [value for *_, value in query(engine, "count(up == 1)")] != ["4"]:
        assert time.monotonic() < deadline, query(engine, "up")
        time.sleep(0.5)
    groups = fetch(engine, "rules")["groups"]
    assert len(groups) >= 7
    assert [rule["lastError"] for group in groups for rule in group["rules"] if rule["health"] == "err"] == []


def list_nodes(analyzer: RunningServe) -> set[str]:
    with urllib.request.urlopen(f"{analyzer.url}/api/v1/gpus?limit=100", timeout=10) as response:
        return {each["node"] for each in json.load(response)["items"]}


def query(engine: RunningEngine, expression: str) -> list[list[Any]]:
    found = fetch(engine, f"query?{urllib.parse.urlencode({'query': expression})}")
    return [row["value"] for row in found["result"]]


def fetch(engine: RunningEngine, path: str) -> Json:
    with urllib.request.urlopen(f"{engine.url}/api/v1/{path}", timeout=10) as response:
        return json.load(response)["data"]
