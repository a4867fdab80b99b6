"""dcgm-exporter's own families: XIDs and clock events over a window and in total, and the P2P status."""

from collections.abc import Iterable
from dataclasses import replace

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.core.exposition import LabelCache
from gpusteward.core.node.gpus import GpuReading
from gpusteward.core.node.signals import CLOCK_EVENTS
from tests.agent.dialects.snapshot_views import SIGNALS, Page, Samples, claim, fields, instance, reading, render, view

XIDS = "DCGM_EXP_XID_ERRORS_COUNT"
CLOCKS = "DCGM_EXP_CLOCK_EVENTS_COUNT"
PEERS = "DCGM_EXP_P2P_STATUS"


class Story:
    """A dialect that is shown one moment after another."""

    def __init__(self, name: str) -> None:
        self.name = name
        options = DcgmOptions(xid_window_seconds=60.0, clock_events_window_seconds=60.0)
        self.dialect = DcgmDialect(options, fields("DCGM_FI_DRIVER_VERSION,label,", name), labels=LabelCache())

    def at(self, now: float, readings: Iterable[GpuReading]) -> Samples:
        return Page(self.dialect.families(view(readings, taken_at=now))).samples(self.name)

    def xids(self, now: float, counts: dict[int, int]) -> dict[str | None, float]:
        return {labels.get("xid"): n for labels, n in self.at(now, [reading(xid_counts=counts)])}

    def clocks(self, now: float, mask: float) -> dict[str, float]:
        seen = self.at(now, [reading(signals=SIGNALS | {"clock_event_reasons": mask})])
        return {labels["clock_event"]: count for labels, count in seen if count}


def test_labels_of_an_xid_count_are_sorted_before_the_pod() -> None:
    chosen = fields("DCGM_FI_DRIVER_VERSION,label,", XIDS)
    seen = view([reading(xid_counts={42: 1})], [claim("a")])
    labels, value = render(seen, DcgmOptions(hostname="node-1"), chosen).only(XIDS)
    assert list(labels)[5:] == [
        "Hostname",
        "DCGM_FI_DRIVER_VERSION",
        "window_size_in_ms",
        "xid",
        "container",
        "namespace",
        "pod",
    ]
    assert (labels["window_size_in_ms"], labels["xid"], value) == ("300000", "42", 1)


def test_without_xids_the_count_is_0_without_an_xid_label() -> None:
    assert Story(XIDS).xids(0, {}) == {None: 0}


def test_xids_leave_the_window_after_its_time() -> None:
    story = Story(XIDS)
    assert story.xids(0, {31: 1}) == {"31": 1}
    assert story.xids(30, {31: 3, 48: 1}) == {"31": 3, "48": 1}
    assert story.xids(60, {31: 3, 48: 1}) == {"31": 2, "48": 1}
    assert story.xids(90, {31: 3, 48: 1}) == {None: 0}


def test_a_view_without_gpus_does_not_count_old_xids_again() -> None:
    story = Story(XIDS)
    story.xids(0, {31: 5})
    story.at(61, [])
    assert story.xids(62, {31: 5}) == {None: 0}


def test_xids_of_a_gpu_that_appears_later_are_not_counted() -> None:
    story = Story(XIDS)
    story.at(0, [reading(1)])
    assert story.xids(5, {79: 1}) == {None: 0}
    assert story.xids(10, {79: 2}) == {"79": 1}


def test_a_clock_set_back_empties_the_window() -> None:
    story = Story(XIDS)
    story.xids(1000, {31: 1})
    assert story.xids(500, {31: 1}) == {None: 0}
    assert story.xids(505, {31: 2}) == {"31": 1}


def test_clock_events_count_the_collections_in_the_window() -> None:
    story = Story(CLOCKS)
    story.clocks(0, 0x1)
    story.clocks(20, 0x4 | 0x40)
    assert story.clocks(40, 0x4) == {"gpu_idle": 1, "power_cap": 2, "hw_thermal": 1}
    assert story.clocks(60, 0x0) == {"power_cap": 2, "hw_thermal": 1}
    assert story.clocks(200, 0x0) == {}


def test_every_clock_event_is_there_from_the_start() -> None:
    assert [labels["clock_event"] for labels, _ in Story(CLOCKS).at(0, [reading()])] == list(CLOCK_EVENTS.values())
    totals = Story("DCGM_EXP_CLOCK_EVENTS_TOTAL").at(0, [reading(clock_event_counts={"power_cap": 4})])
    assert {labels["clock_event"]: value for labels, value in totals}["power_cap"] == 4
    assert len(totals) == len(CLOCK_EVENTS)
    assert "window_size_in_ms" not in totals[0][0]


def test_xids_in_all_are_a_counter_per_code() -> None:
    totals = Story("DCGM_EXP_XID_ERRORS_TOTAL").at(0, [reading(xid_counts={48: 1, 31: 7})])
    assert [(labels["xid"], value) for labels, value in totals] == [("31", 7), ("48", 1)]


def test_events_that_cannot_be_read_are_unknown_not_0() -> None:
    blind = [reading(signals={"temperature_celsius": 36.0})]
    for name in (XIDS, CLOCKS, "DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_EXP_CLOCK_EVENTS_TOTAL"):
        assert Story(name).at(0, blind) == []


def test_events_of_a_mig_device_are_exported_once() -> None:
    sliced = [reading(0, is_mig_parent=True, xid_counts={31: 1}), instance(0, 7), instance(0, 8)]
    [(labels, value)] = Story(XIDS).at(0, sliced)
    assert value == 1
    assert "GPU_I_ID" not in labels


def test_peers_are_named_with_their_status() -> None:
    seen = Story(PEERS).at(0, [reading(0, peer_status={1: 0, 2: 3, 3: 9})])
    assert [(labels["peer_gpu"], labels["link_status"], value) for labels, value in seen] == [
        ("1", "OK", 0),
        ("2", "TopologyNotSupported", 3),
        ("3", "Unknown", 9),
    ]


def test_xids_of_mig_instances_count_on_their_gpu() -> None:
    parent, sliced = reading(is_mig_parent=True, xid_counts={31: 1}), instance(0, 7)
    touched = replace(sliced, xid_counts={31: 2, 43: 1})
    window, total = Story(XIDS), Story("DCGM_EXP_XID_ERRORS_TOTAL")
    window.at(0, [parent, sliced])
    assert {labels["xid"]: n for labels, n in window.at(5, [parent, touched])} == {"31": 3, "43": 1}
    assert {labels["xid"]: n for labels, n in total.at(5, [parent, touched])} == {"31": 3, "43": 1}


XID_GAUGE = "DCGM_FI_DEV_XID_ERRORS"


def test_the_last_xid_has_its_code_and_text_as_labels_only_if_asked_for() -> None:
    seen = view([reading(signals=SIGNALS | {"last_xid": 79.0})], [claim("a")])
    plain, value = render(seen).only(XID_GAUGE)
    labels, same = render(seen, DcgmOptions(xid_error_labels=True)).only(XID_GAUGE)
    assert labels == {**plain, "err_code": "79", "err_msg": "GPU has fallen off the bus"}
    assert list(labels)[-5:] == ["container", "err_code", "err_msg", "namespace", "pod"]
    assert (value, same) == (79, 79)


def test_no_xid_and_an_unknown_one_have_a_text_too_under_both_names_of_the_gauge() -> None:
    for xid, text in ((0.0, "no error"), (9999.0, "unknown XID")):
        seen = view([reading(signals=SIGNALS | {"last_xid": xid})])
        page = render(seen, DcgmOptions(names="both", xid_error_labels=True))
        for name in (XID_GAUGE, "DCGM_FI_DEV_XID_ERROR"):
            labels, _ = page.only(name)
            assert (labels["err_code"], labels["err_msg"]) == (f"{xid:.0f}", text)


def test_error_labels_are_on_no_other_family_and_pod_labels_do_not_collide_with_them() -> None:
    seen = view([reading()], [claim("a", labels={"err_msg": "mine"})])
    page = render(seen, DcgmOptions(pod_labels=True, xid_error_labels=True))
    assert {name for name in page.names() if "err_code" in page.samples(name)[0][0]} == {XID_GAUGE}
    assert page.only(XID_GAUGE)[0]["pod_label_err_msg"] == "mine"
