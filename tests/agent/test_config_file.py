"""dcgm-exporter's YAML configuration file."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusteward.agent.settings.config_file import ONE_INTERVAL
from gpusteward.agent.settings.foreign_flags import ALWAYS_SEEN, NO_SAMPLES
from gpusteward.agent.settings.table import AgentSettings, read_settings
from gpusteward.core.errors import ConfigurationError

VERSION_1 = """
version: 1
metrics:
  file: /etc/dcgm-exporter/default-counters.csv
collection:
  interval: 30s
  retention: {maxAge: 10m, maxSamples: 0}
  watchGroups:
    - name: fast-thermals
      interval: 5s
      fields: [DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_POWER_USAGE]
"""
VERSION_2 = """
version: 2
metrics:
  enableExporterMetrics: false
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: GPU temperature (in C).}
    - name: DCGM_FI_DRIVER_VERSION
      prometheusType: label
      help: Driver
    - {name: DCGM_EXP_GPU_HEALTH_STATUS, prometheusType: gauge, help: x}
sources:
  dcgm:
    watch: {maxKeepAge: 10m, maxKeepSamples: 0}
    detectBindUnbind: {enabled: true, pollInterval: 1s}
collections:
  - name: scrape
    every: 1m30s
    metrics: {include: ["*"]}
  - name: slow-nvlink
    every: 5m
    metrics: {include: [DCGM_FI_DEV_NVLINK_*]}
    sources: {dcgm: {watch: {maxKeepSamples: 2}}}
server:
  maxConcurrentScrapes: 4
"""


class Reader:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, text: str, *arguments: str, **environ: str) -> AgentSettings:
        self.path.write_text(text)
        return read_settings(["--config-file", str(self.path), *arguments], environ)

    def refuse(self, text: str) -> str:
        with pytest.raises(ConfigurationError) as caught:
            self.read(text)
        return str(caught.value).replace(str(self.path), "config.yaml")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "config.yaml")


def test_a_file_of_version_1_sets_the_list_and_the_interval(reader: Reader) -> None:
    read = reader.read(VERSION_1)
    assert read.collectors == Path("/etc/dcgm-exporter/default-counters.csv")
    assert read.interval_seconds == 30
    assert read.fields is None


def test_a_file_of_version_2_sets_fields_interval_and_concurrent_scrapes(reader: Reader) -> None:
    read = reader.read(VERSION_2)
    assert read.fields is not None
    assert [(row.name, row.kind, row.help) for row in read.fields.metrics] == [
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).")
    ]
    assert [row.name for row in read.fields.labels] == ["DCGM_FI_DRIVER_VERSION"]
    assert read.fields.unserved == ("DCGM_EXP_GPU_HEALTH_STATUS",)
    assert (read.interval_seconds, read.max_concurrent_scrapes) == (90, 4)


def test_what_has_no_effect_is_named_with_its_line_and_its_reason(reader: Reader) -> None:
    lines = {
        name.replace(f"{reader.path} ", ""): reason
        for text in (VERSION_1, VERSION_2)
        for name, reason in reader.read(text).ignored
    }
    assert lines == {
        "collection.retention (line 7)": NO_SAMPLES,
        "collection.watchGroups[0].interval (line 10)": ONE_INTERVAL,
        "sources.dcgm.watch (line 13)": NO_SAMPLES,
        "sources.dcgm.detectBindUnbind (line 14)": ALWAYS_SEEN,
        "collections[1].every (line 20)": ONE_INTERVAL,
        "collections[1].sources (line 22)": NO_SAMPLES,
    }


def test_flags_and_variables_win_over_the_file(reader: Reader) -> None:
    read = reader.read(VERSION_2, "-c", "7000", DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES="9")
    assert (read.interval_seconds, read.max_concurrent_scrapes) == (7, 9)
    assert reader.read(VERSION_2, GPUSTEWARD_INTERVAL="3").interval_seconds == 3
    for arguments in (["-f", "/x.csv"], ["-m", "gpu:fields"]):
        assert reader.read(VERSION_2, *arguments).fields is None
    assert reader.read(VERSION_2, "-m", "none").fields is not None
    assert reader.read(VERSION_1, "-f", "/x.csv").collectors == Path("/x.csv")


def test_the_file_may_be_named_by_a_variable_and_may_say_little(reader: Reader) -> None:
    reader.path.write_text("version: 2\nserver: {maxConcurrentScrapes: 5}\n")
    read = read_settings([], {"DCGM_EXPORTER_CONFIG_FILE": str(reader.path)})
    assert read == AgentSettings(config_file=reader.path, max_concurrent_scrapes=5)
    assert reader.read("version: 1\nmetrics:\ncollection:\n") == AgentSettings(config_file=reader.path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "version (config.yaml line 1): write version: 1 or version: 2"),
        ("- a\n", "version (config.yaml line 1): write keys with values"),
        ("version: 3\n", "version (config.yaml line 1): write version: 1 or version: 2"),
        ("version: [1]\n", "version (config.yaml line 1): write a single value"),
        ("version: 2\nmetric: {}\n", "metric (config.yaml line 2): unknown key; did you mean 'metrics'?"),
        ("version: 2\ncollection: {}\n", "collection (config.yaml line 2): version 2 does not have this key"),
        ("version: 1\ncollections: []\n", "collections (config.yaml line 2): version 1 does not have this key"),
        ("version: 2\ncollections: []\n", "collections (config.yaml line 2): write a list with at least one item"),
        ("version: 2\nmetrics: x\n", "metrics (config.yaml line 2): write keys with values"),
        (
            "version: 2\nmetrics:\n  file: x\n  fields: [{}]\n",
            "metrics (config.yaml line 3): write either file or fields, not both",
        ),
        (
            "version: 2\nmetrics:\n  fields:\n    - name: DCGM_FI_DEV_GPU_TEMP\n      help: x\n",
            "metrics.fields[0] (config.yaml line 4): the key 'prometheusType' is missing",
        ),
        (
            "version: 2\nmetrics:\n  fields:\n    - {name: DCGM_FI_DEV_GPU_TEMPP, prometheusType: gauge, help: x}\n",
            "config.yaml line 4: unknown field 'DCGM_FI_DEV_GPU_TEMPP'; did you mean 'DCGM_FI_DEV_GPU_TEMP'?",
        ),
        (
            "version: 2\nmetrics: {enableExporterMetrics: maybe}\n",
            "metrics.enableExporterMetrics: 'maybe' (config.yaml line 2): write true or false",
        ),
        (
            "version: 1\ncollection:\n  interval: 30\n",
            "collection.interval: '30' (config.yaml line 3): write a duration above 0 with its unit, such as 10s,"
            " 1m30s or 500ms",
        ),
        (
            "version: 1\ncollection:\n  interval: 100ms\n",
            "collection.interval: '100ms' (config.yaml line 3): write 500ms to 10m",
        ),
        (
            "version: 1\ncollection:\n  watchGroups: [{name: x}]\n",
            "collection.watchGroups[0] (config.yaml line 3): the key 'interval' is missing",
        ),
        (
            "version: 2\ncollections: [{every: 1s, metrics: {}}]\n",
            "collections[0].metrics (config.yaml line 2): the key 'include' is missing",
        ),
        (
            "version: 2\nserver: {maxConcurrentScrapes: 0}\n",
            "server.maxConcurrentScrapes: '0' (config.yaml line 2): write a whole number from 1 to 1000",
        ),
        ("version: 2\n---\nversion: 2\n", "config.yaml line 2 is not YAML: but found another document"),
        ("version: 2\nmetrics: {\n", "config.yaml line 3 is not YAML"),
    ],
)
def test_an_error_names_the_key_the_file_the_line_and_what_to_write(reader: Reader, text: str, error: str) -> None:
    assert reader.refuse(text).startswith(error)


def test_a_misspelled_key_is_suggested(reader: Reader) -> None:
    with pytest.raises(ConfigurationError) as caught:
        reader.read("version: 2\nmetric: {}\n")
    assert str(caught.value) == f"metric ({reader.path} line 2): unknown key; did you mean 'metrics'?"


def test_a_file_that_cannot_be_read_is_one_message(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*; check --config-file"):
        read_settings(["--config-file", str(tmp_path / "none.yaml")], {})
    reader.path.write_bytes(b"version: \xff")
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        read_settings(["--config-file", str(reader.path)], {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    st.text(alphabet=st.sampled_from("version: 12\n-[]{}'\"&*!<|>#,\t") | st.characters(), max_size=60),
    st.sampled_from(["", "version: 2\nmetrics: ", "version: 2\ncollections: ", "version: 1\ncollection: "]),
)
def test_any_text_is_settings_or_a_configuration_error(reader: Reader, text: str, before: str) -> None:
    with contextlib.suppress(ConfigurationError, UnicodeEncodeError):
        reader.read(before + text)
