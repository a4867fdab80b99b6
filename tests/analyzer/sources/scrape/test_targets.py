"""Targets from the settings, from a file that changes, and from the pods of the cluster."""

import json
from pathlib import Path
from traceback import extract_tb

import pytest
from pydantic import ValidationError

from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings, parse_target
from gpusteward.analyzer.sources.scrape.targets import FileTargets, PodTargets, StaticTargets, Target, TargetRegistry
from gpusteward.core.errors import ConfigurationError
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.apiserver import FakeApiServer, pod
from tests.garbage import collecting_garbage

GROUPS = [
    {"targets": ["n1:9400", "n2:9400"], "labels": {"job": "dcgm", "__scheme__": "https", "__metrics_path__": "/m"}},
    {"targets": ["n3"]},
]
URLS = ["https://n1:9400/m", "https://n2:9400/m", "http://n3:9400/metrics"]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("node-7", "http://node-7:9400/metrics"),
        ("10.0.0.7:9445", "http://10.0.0.7:9445/metrics"),
        ("[fd00::7]:9400", "http://[fd00::7]:9400/metrics"),
        ("http://node-7/gpu?all=1", "http://node-7:80/gpu?all=1"),
        (" https://node-7 ", "https://node-7:443/metrics"),
    ],
)
def test_missing_parts_of_an_address_get_defaults(text: str, url: str):
    assert Target(parse_target(text)).name == url


@pytest.mark.parametrize(
    "text", ["", "ftp://x", "a b", "node:0", "node:99999", "http://me:secret@node", "node\r\nX: 1"]
)
def test_an_invalid_address_is_refused_without_repeating_its_password(text: str):
    with pytest.raises(ConfigurationError) as caught:
        parse_target(text)
    assert "secret" not in str(caught.value)
    with pytest.raises(ValidationError):
        ScrapeSettings(targets=[text])


def test_static_targets_have_the_port_and_scheme_of_the_settings():
    settings = ScrapeSettings(targets=["n1", "http://n2:1/x"], port=9445, scheme="https")
    assert [target.name for target in StaticTargets(settings).read()] == ["https://n1:9445/metrics", "http://n2:1/x"]


def replace_file(path: Path, text: str) -> None:
    """As a ConfigMap or an editor does: another file in its place."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


@pytest.mark.parametrize("name", ["targets.json", "targets.yml"])
def test_a_file_sd_file_is_read_with_its_labels(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_text(json.dumps(GROUPS))  # JSON is YAML too
    targets = FileTargets(path, ScrapeSettings()).read()
    assert targets is not None
    assert [target.name for target in targets] == URLS
    assert targets[0].labels == {"job": "dcgm"}


@pytest.mark.parametrize(
    "bad", ["{", "[1]", '[{"labels": {}}]', '[{"targets": ["a b"]}]', '"text"', "[&a [*a]]", "!!bool x"]
)
def test_an_invalid_file_keeps_the_last_targets_and_is_an_error_until_it_is_fixed(tmp_path: Path, bad: str):
    path = tmp_path / "targets.yaml"
    path.write_text(json.dumps(GROUPS))
    registry = TargetRegistry([FileTargets(path, ScrapeSettings())], limit=100)
    assert list(registry.refresh(0)) == URLS
    for moment in (10, 20):
        replace_file(path, bad)
        assert list(registry.refresh(moment)) == URLS
        assert "scrape.targets_file" in registry.errors
    replace_file(path, json.dumps(GROUPS[1:]))
    assert list(registry.refresh(30)) == URLS[2:]
    assert registry.errors == {}


def test_an_invalid_address_in_a_file_leaves_out_only_itself_and_is_reported(tmp_path: Path):
    path = tmp_path / "targets.json"
    bad = [{"targets": ["http://me:secret@n0", "n1:99999"]}, {"targets": ["n2"], "labels": {"__scheme__": "ftp"}}]
    path.write_text(json.dumps([*bad, *GROUPS]))
    registry = TargetRegistry([FileTargets(path, ScrapeSettings())], limit=100)
    for moment in (0, 10):
        assert list(registry.refresh(moment)) == URLS
        error = registry.errors["scrape.targets_file"]
        assert error.startswith("3 of 6 targets left out: target 'n0': write HOST")
        assert "secret" not in error
    replace_file(path, json.dumps(GROUPS))
    assert list(registry.refresh(20)) == URLS
    assert registry.errors == {}


@pytest.mark.parametrize("text", ['[{"targets": ["a b"]}]', '[{"targets": ["a b", "n1"]}]', "{"])
def test_the_error_of_a_file_does_not_grow_and_is_freed_without_the_garbage_collector(tmp_path: Path, text: str):
    (tmp_path / "targets.json").write_text(text)
    targets = FileTargets(tmp_path / "targets.json", ScrapeSettings())
    depths: list[int] = []
    with collecting_garbage() as garbage:
        for _ in range(5):
            try:
                targets.read()
            except ConfigurationError as error:
                depths.append(len(extract_tb(error.__traceback__)))
    assert len(set(depths)) <= 1
    assert garbage == []


def test_a_missing_file_is_read_as_soon_as_it_exists(tmp_path: Path):
    path = tmp_path / "targets.json"
    registry = TargetRegistry([FileTargets(path, ScrapeSettings())], limit=100)
    assert registry.refresh(0) == {}
    assert "cannot be read" in registry.errors["scrape.targets_file"]
    path.write_text(json.dumps(GROUPS))
    assert list(registry.refresh(10)) == URLS


def test_targets_beyond_the_limit_are_left_out_and_counted():
    registry = TargetRegistry([StaticTargets(ScrapeSettings(targets=["a", "b", "c"]))], limit=2)
    assert len(registry.refresh(0)) == 2
    assert registry.omitted == 1


def exporter(
    name: str,
    ip: str | None = "10.0.0.1",
    *,
    port: int | None = 9445,
    phase: str = "Running",
    node: str = "",
    namespace: str = "ml",
) -> dict:
    item = pod(name, phase=phase, node=node or f"node-of-{name}", namespace=namespace)
    item["status"] |= {"podIP": ip} if ip else {}
    item["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": port}] if port else []
    return item


def test_a_long_list_of_pods_is_read_page_by_page():
    with FakeApiServer() as server:
        for number in range(3):
            server.add_pod(exporter(f"agent-{number}", f"10.0.0.{number}"))
        server.page_size = 1
        targets = PodTargets(ApiServer(server.url), ScrapeSettings(), own_namespace="ml").read()
        assert [target.url.host for target in targets] == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
