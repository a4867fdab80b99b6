"""Whom to scrape: written down, in a file that changes, or among the pods of the cluster."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from gpusteward.analyzer.sources.scrape.file_targets import FileList
from gpusteward.analyzer.sources.scrape.pod_targets import PodList
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings, parse_target
from gpusteward.analyzer.sources.scrape.targets import FixedList, KnownTargets, Target
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.http.urls import HttpUrl
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.apiserver import FakeApiServer, pod

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
def test_what_is_missing_in_an_address_is_filled_in(text: str, url: str):
    assert Target(parse_target(text)).name == url


@pytest.mark.parametrize(
    "text", ["", "ftp://x", "a b", "node:0", "node:99999", "http://me:secret@node", "node\r\nX: 1"]
)
def test_what_is_no_address_is_refused_without_its_password(text: str):
    with pytest.raises(ConfigurationError) as caught:
        parse_target(text)
    assert "secret" not in str(caught.value)
    with pytest.raises(ValidationError):
        ScrapeSettings(targets=[text])


def test_written_targets_have_the_port_and_scheme_of_the_settings():
    settings = ScrapeSettings(targets=["n1", "http://n2:1/x"], port=9445, scheme="https")
    assert [target.name for target in FixedList(settings).read()] == ["https://n1:9445/metrics", "http://n2:1/x"]


def touch(path: Path, text: str) -> None:
    """As a ConfigMap or an editor would: another file in its place."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


@pytest.mark.parametrize("name", ["targets.json", "targets.yml"])
def test_a_file_of_prometheus_is_read_with_its_labels(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_text(json.dumps(GROUPS))  # JSON is YAML too
    targets = FileList(path, ScrapeSettings()).read()
    assert targets is not None
    assert [target.name for target in targets] == URLS
    assert targets[0].labels == {"job": "dcgm"}


@pytest.mark.parametrize(
    "bad", ["{", "[1]", '[{"labels": {}}]', '[{"targets": ["a b"]}]', '"text"', "[&a [*a]]", "!!bool x"]
)
def test_a_bad_file_leaves_the_last_good_targets_and_says_so_until_it_is_mended(tmp_path: Path, bad: str):
    path = tmp_path / "targets.yaml"
    path.write_text(json.dumps(GROUPS))
    known = KnownTargets([FileList(path, ScrapeSettings())], limit=100)
    assert list(known.look(0)) == URLS
    for moment in (10, 20):
        touch(path, bad)
        assert list(known.look(moment)) == URLS
        assert "scrape.targets_file" in known.complaints
    touch(path, json.dumps(GROUPS[1:]))
    assert list(known.look(30)) == URLS[2:]
    assert known.complaints == {}


def test_a_bad_address_in_a_file_costs_only_its_own_entry_and_is_said(tmp_path: Path):
    path = tmp_path / "targets.json"
    bad = [{"targets": ["http://me:secret@n0", "n1:99999"]}, {"targets": ["n2"], "labels": {"__scheme__": "ftp"}}]
    path.write_text(json.dumps([*bad, *GROUPS]))
    known = KnownTargets([FileList(path, ScrapeSettings())], limit=100)
    for moment in (0, 10):
        assert list(known.look(moment)) == URLS
        said = known.complaints["scrape.targets_file"]
        assert said.startswith("3 of 6 targets left out: target 'n0': write HOST")
        assert "secret" not in said
    touch(path, json.dumps(GROUPS))
    assert list(known.look(20)) == URLS
    assert known.complaints == {}


def test_a_file_that_is_missing_is_read_as_soon_as_it_is_there(tmp_path: Path):
    path = tmp_path / "targets.json"
    known = KnownTargets([FileList(path, ScrapeSettings())], limit=100)
    assert known.look(0) == {}
    assert "cannot be read" in known.complaints["scrape.targets_file"]
    path.write_text(json.dumps(GROUPS))
    assert list(known.look(10)) == URLS


def test_more_targets_than_allowed_are_left_out_and_counted():
    known = KnownTargets([FixedList(ScrapeSettings(targets=["a", "b", "c"]))], limit=2)
    assert len(known.look(0)) == 2
    assert known.left_out == 1


def exporter(name: str, ip: str | None = "10.0.0.1", *, port: int | None = 9445, phase: str = "Running") -> dict:
    item = pod(name, phase=phase, node=f"node-of-{name}")
    item["status"] |= {"podIP": ip} if ip else {}
    item["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": port}] if port else []
    return item


def test_exporters_are_found_among_the_pods_that_run():
    with FakeApiServer() as server:
        for one in (
            exporter("a", "10.0.0.1"),
            exporter("b", "fd00::2", port=None),
            exporter("c", None),
            exporter("d", "10.0.0.4", phase="Pending"),
        ):
            server.add_pod(one)
        server.page_size = 1
        targets = PodList(ApiServer(server.url), ScrapeSettings()).read()
        assert [target.url for target in targets] == [
            HttpUrl("http", "10.0.0.1", 9445, "/metrics"),
            HttpUrl("http", "fd00::2", 9400, "/metrics"),
        ]
        assert targets[0].labels == {"node": "node-of-a"}
        assert "labelSelector=app.kubernetes.io/name%3Dgpusteward" in server.requests[0]


def test_only_the_chosen_namespace_is_asked_for():
    with FakeApiServer() as server:
        PodList(ApiServer(server.url), ScrapeSettings(namespace="gpu")).read()
        assert server.requests[0].startswith("/api/v1/namespaces/gpu/pods?")


def test_an_api_server_that_refuses_leaves_the_pods_known_before():
    with FakeApiServer() as server:
        server.add_pod(exporter("a"))
        pods = PodList(ApiServer(server.url), ScrapeSettings())
        known = KnownTargets([pods], limit=10)
        assert len(known.look(0)) == 1
        server.forbidden = True
        assert len(known.look(100)) == 1
        assert "forbids" in known.complaints["pods of the cluster"]
        with pytest.raises(SourceError):
            pods.read()
