"""Selection of devices in the dcgm dialect (`-d`)."""

import logging

import pytest

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions, DeviceSelection, parse_devices
from gpusteward.agent.field_list import default_fields
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.exposition import LabelCache
from tests.agent.dialects.snapshot_views import instance, reading, render, view


@pytest.mark.parametrize(
    ("text", "util", "used"),
    [
        ("f", ["0", "1"], [("0", "7"), ("0", "8"), ("1", None)]),
        ("g", ["0", "1"], [("0", None), ("1", None)]),
        ("g:1", ["1"], [("1", None)]),
        ("i", ["0"], [("0", "7"), ("0", "8")]),
        ("i:1", ["0"], [("0", "8")]),
        ("g+i", ["0", "1"], [("0", None), ("0", "7"), ("0", "8"), ("1", None)]),
        ("g:1+i:1", ["0", "1"], [("0", "8"), ("1", None)]),
    ],
)
def test_only_selected_devices_are_exported(text: str, util: list[str], used: list[tuple[str, str | None]]) -> None:
    readings = [reading(0, is_mig_parent=True), instance(0, 7), instance(0, 8), reading(1)]
    page = render(view(readings), DcgmOptions(devices=parse_devices(text)))
    assert [labels["gpu"] for labels, _ in page.samples("DCGM_FI_DEV_POWER_USAGE")] == util
    assert [(labels["gpu"], labels.get("GPU_I_ID")) for labels, _ in page.samples("DCGM_FI_DEV_FB_USED")] == used


def test_a_gpu_ready_for_mig_without_an_instance_is_a_whole_gpu() -> None:
    page = render(view([reading(0, is_mig_parent=True)]))
    assert page.values("DCGM_FI_DEV_FB_USED") == [10240]


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("f", DeviceSelection()),
        (" g:0,1,3-5 ", DeviceSelection(frozenset({0, 1, 3, 4, 5}))),
        ("i", DeviceSelection(instances=frozenset())),
        ("i:2-2", DeviceSelection(instances=frozenset({2}))),
        ("g+i", DeviceSelection(frozenset(), frozenset())),
        ("g:0,1+i:0", DeviceSelection(frozenset({0, 1}), frozenset({0}))),
        ("i:3+g", DeviceSelection(frozenset(), frozenset({3}))),
    ],
)
def test_a_device_selection_is_parsed(text: str, selection: DeviceSelection) -> None:
    assert parse_devices(text) == selection


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "use f, g, i or g"),
        ("h", "use f, g, i or g"),
        ("f:0", "only g and i accept a list"),
        ("f+g", "use f, g, i or g"),
        ("g:0+g:1", "use f, g, i or g"),
        ("g+", "use f, g, i or g"),
        ("g:", "neither an id nor a range"),
        ("g:0,,1", "neither an id nor a range"),
        ("g:1-2-3", "neither an id nor a range"),
        ("g:0:1", "neither an id nor a range"),
        ("g:-1", "neither an id nor a range"),
        ("g:5-3", "runs backwards"),
    ],
)
def test_an_invalid_device_selection_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse_devices(text)


@pytest.mark.parametrize(
    ("text", "ids"), [("g:0,9", "g:9"), ("i:0,1,2", "i:2"), ("g:0,9+i:4", "g:9,i:4"), ("g:0", None), ("f", None)]
)
def test_missing_device_ids_are_logged_once(text: str, ids: str | None) -> None:
    dialect = DcgmDialect(DcgmOptions(devices=parse_devices(text)), default_fields(), labels=LabelCache())
    logged: list[str] = []

    def listen(record: logging.LogRecord) -> bool:
        logged.append(record.__dict__["facts"]["ids"])
        return False

    logger = logging.getLogger("gpusteward.agent.dialects.dcgm")
    logger.addFilter(listen)
    readings = [reading(0, is_mig_parent=True), instance(0, 7), instance(0, 8)]
    for seen in (view([]), view(readings), view(readings)):
        dialect.families(seen)
    logger.removeFilter(listen)
    assert logged == ([ids] if ids else [])
