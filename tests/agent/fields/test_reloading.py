"""Where a field list comes from, and what happens when it changes."""

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpusteward.agent.field_list import ReloadedFields, watch_field_config_map, watch_field_file
from gpusteward.core.errors import ConfigurationError, SourceError

TEMP = "DCGM_FI_DEV_GPU_TEMP, gauge, x\n"
USED = "DCGM_FI_DEV_FB_USED, gauge, x\n"


def names(source: ReloadedFields, now: float = 0.0) -> list[str]:
    return [row.name for row in source.poll(now).metrics]


class Message(logging.Handler):
    """Logged events from level info."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    handler, logger = Message(), logging.getLogger("gpusteward.agent.field_list")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.events
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    path = tmp_path / "counters.csv"
    path.write_text(TEMP)
    return path


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.csv cannot be read: no such file or directory"):
        watch_field_file(tmp_path / "nowhere.csv")


def test_a_directory_and_binary_data_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: is a directory"):
        watch_field_file(tmp_path)
    (tmp_path / "latin.csv").write_bytes(b"DCGM_FI_DEV_GPU_TEMP, gauge, 5 \xb0C\n")
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        watch_field_file(tmp_path / "latin.csv")


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "mark.csv").write_text(TEMP, encoding="utf-8-sig")
    assert names(watch_field_file(tmp_path / "mark.csv")) == ["DCGM_FI_DEV_GPU_TEMP"]


def test_a_changed_file_is_read_again_and_an_untouched_one_is_not(counters: Path) -> None:
    source = watch_field_file(counters)
    before = source.poll(0.0)
    assert source.poll(1.0) is before
    counters.write_text(USED + TEMP)
    assert names(source, 2.0) == ["DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP"]
    assert (source.reloads_ok, source.reloads_refused) == (1, 0)


def test_a_file_touched_but_not_changed_is_not_a_reload(counters: Path) -> None:
    source = watch_field_file(counters)
    before = source.poll(0.0)
    os.utime(counters, (1.0, 1.0))
    assert source.poll(1.0) is before
    assert source.reloads_ok == 0


def mount(folder: Path, version: str, text: str) -> None:
    """Put a version of a ConfigMap in place as the kubelet does: one swap of the link `..data`."""
    (folder / version).mkdir()
    (folder / version / "counters.csv").write_text(text)
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").rename(folder / "..data")


def test_the_symlink_swap_of_a_mounted_config_map_is_noticed(tmp_path: Path) -> None:
    mount(tmp_path, "..2026_01", TEMP)
    (tmp_path / "counters.csv").symlink_to("..data/counters.csv")
    source = watch_field_file(tmp_path / "counters.csv")
    assert names(source) == ["DCGM_FI_DEV_GPU_TEMP"]
    mount(tmp_path, "..2026_02", USED)
    assert names(source, 1.0) == ["DCGM_FI_DEV_FB_USED"]
    assert source.reloads_ok == 1


def test_an_invalid_file_keeps_the_last_valid_list_and_is_logged_once(counters: Path, logged: list[str]) -> None:
    source = watch_field_file(counters)
    good = source.poll(0.0)
    counters.write_text(TEMP + "DCGM_FI_DEV_GPU_TEMPP, gauge, x\n")
    for now in (1.0, 2.0, 3.0):
        assert source.poll(now) is good
    assert logged == ["fields_refused"]
    assert (source.reloads_ok, source.reloads_refused) == (0, 1)


def test_a_fixed_file_is_used_and_a_new_error_is_logged_again(counters: Path, logged: list[str]) -> None:
    source = watch_field_file(counters)
    for now, text in enumerate(("", "NOTHING, gauge, x\n", USED, "")):
        counters.write_text(text)
        source.poll(float(now))
    assert logged == ["fields_refused", "fields_refused", "fields_reloaded", "fields_refused"]
    assert names(source, 9.0) == ["DCGM_FI_DEV_FB_USED"]


def test_a_file_that_reappears_unchanged_is_not_a_reload(counters: Path, logged: list[str]) -> None:
    source = watch_field_file(counters)
    for now in range(3):
        counters.unlink(missing_ok=True)
        assert names(source, float(now)) == ["DCGM_FI_DEV_GPU_TEMP"]
    counters.write_text(TEMP)
    source.poll(4.0)
    assert (source.reloads_ok, source.reloads_refused) == (0, 1)
    counters.unlink()
    source.poll(5.0)
    assert logged == ["fields_refused", "fields_refused"]


def test_fields_only_dcgm_has_cost_one_warning(counters: Path, logged: list[str]) -> None:
    counters.write_text(TEMP + "DCGM_EXP_GPU_HEALTH_STATUS, gauge, x\nDCGM_FI_DEV_BAR1_USED, gauge, x\n")
    source = watch_field_file(counters)
    source.poll(1.0)
    assert logged == ["fields_unserved"]


class FakeConfigMap:
    """Counts how often it is read; `refuse` makes the API server fail."""

    def __init__(self, data: Mapping[str, str]) -> None:
        self.data = data
        self.reads = 0
        self.refuse = False

    def __call__(self) -> Mapping[str, str]:
        self.reads += 1
        if self.refuse:
            raise SourceError("the API server does not respond")
        return self.data


def test_a_config_map_is_read_again_only_after_its_period() -> None:
    config_map = FakeConfigMap({"metrics": TEMP})
    source = watch_field_config_map("gpu:fields", config_map, period_seconds=30.0)
    source.poll(100.0)
    reads = config_map.reads
    config_map.data = {"metrics": USED}
    assert names(source, 129.9) == ["DCGM_FI_DEV_GPU_TEMP"]
    assert config_map.reads == reads
    assert names(source, 130.0) == ["DCGM_FI_DEV_FB_USED"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({}, r"^ConfigMap gpu:fields has no key 'metrics'; its keys: none$"),
        ({"b": "", "a": ""}, r"has no key 'metrics'; its keys: a, b$"),
        ({"metrics": ""}, r"^ConfigMap gpu:fields: no metrics found"),
        ({"metrics": "NOTHING, gauge, x"}, r"^ConfigMap gpu:fields line 1: unknown field 'NOTHING'"),
    ],
)
def test_an_invalid_config_map_is_refused_at_the_start(data: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        watch_field_config_map("gpu:fields", FakeConfigMap(data))


def test_an_api_server_failure_at_the_start_is_reported_with_the_flag() -> None:
    config_map = FakeConfigMap({})
    config_map.refuse = True
    with pytest.raises(SourceError, match=r"^ConfigMap gpu:fields cannot be read: .*; check --configmap-data$"):
        watch_field_config_map("gpu:fields", config_map)


def test_a_later_api_server_failure_keeps_the_list(logged: list[str]) -> None:
    config_map = FakeConfigMap({"metrics": TEMP})
    source = watch_field_config_map("gpu:fields", config_map, period_seconds=1.0)
    config_map.refuse = True
    for now in (1.0, 2.0, 3.0):
        assert names(source, now) == ["DCGM_FI_DEV_GPU_TEMP"]
    assert logged == ["fields_refused"]
