"""Workloads that would fit into a part of a GPU, and those that must not be suggested."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.analyzer.judge.gpu_models import MIB
from gpusteward.analyzer.prices import HOUR_MS
from gpusteward.analyzer.reports.report import Finding
from gpusteward.analyzer.reports.right_sizing import BOARDS, WholeGpuWorkload, find_board, find_smaller
from tests.analyzer.reports.ledger_rows import A100, GIB, H100, T4

SMALL = WholeGpuWorkload(
    kind="Deployment",
    namespace="search",
    name="embed",
    model=A100,
    gpus=2,
    allocated_gpu_ms=336 * HOUR_MS,
    active_gpu_ms=100 * HOUR_MS,
    unmeasured_gpu_ms=0,
    cost_micros=672_000_000,
    core_peak_ratio=0.1,
    memory_peak_bytes=5 * GIB,
    memory_total_bytes=80 * GIB,
)


def fit(**changes: object) -> Finding | None:
    return next(iter(find_smaller([replace(SMALL, **changes)])), None)


def profile_of(**changes: object) -> str | None:
    found = fit(**changes)
    return found.profile if found else None


def test_a_small_workload_fits_the_smallest_profile_with_the_evidence_and_the_saving():
    found = fit()
    assert found is not None
    assert (found.part, found.profile) == ("mig", "1g.10gb")
    assert (found.core_peak_ratio, found.memory_peak_bytes, found.memory_total_bytes) == (0.1, 5 * GIB, 80 * GIB)
    assert found.saving_gpu_ms == 288 * HOUR_MS  # six sevenths
    assert found.saving_micros == 576_000_000


@pytest.mark.parametrize(
    ("core", "memory", "profile"),
    [
        (0.1, 7.4, "1g.10gb"),
        (0.1, 7.6, "1g.20gb"),  # 1.2 times the peak is more than 90 % of 10 GiB
        (0.2, 7.0, "2g.20gb"),  # one seventh of the board is busy at 0.114 already
        (0.3, 16.0, "3g.40gb"),
        (0.4, 20.0, "4g.40gb"),
        (0.5, 5.0, None),
        (0.1, 31.0, None),
    ],
)
def test_memory_and_compute_both_fit_with_a_margin(core: float, memory: float, profile: str | None):
    assert profile_of(core_peak_ratio=core, memory_peak_bytes=int(memory * GIB)) == profile


@pytest.mark.parametrize(
    ("model", "total_gib", "profile"),
    [
        ("NVIDIA A100-SXM4-40GB", 40, "1g.10gb"),
        ("NVIDIA A30", 24, "1g.6gb"),
        (H100, 79.6, "1g.10gb"),
        ("NVIDIA H100 NVL", 93.6, "1g.12gb"),
        ("NVIDIA GH200 480GB", 95.6, "1g.12gb"),
        ("NVIDIA H20", 95.6, "1g.12gb"),
        ("NVIDIA H200", 140.4, "1g.18gb"),
        ("NVIDIA B200", 179.1, "1g.23gb"),
        ("NVIDIA GB200", 185.0, "1g.23gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.6, "1g.24gb"),
    ],
)
def test_every_board_has_its_own_profiles(model: str, total_gib: float, profile: str):
    memory = 4.4 if "A30" in model else 5.0
    found = fit(model=model, memory_total_bytes=int(total_gib * GIB), memory_peak_bytes=int(memory * GIB))
    assert found is not None
    assert (found.part, found.profile) == ("mig", profile)


def test_a_board_without_mig_is_shared():
    found = fit(model=T4, memory_total_bytes=15 * GIB, memory_peak_bytes=3 * GIB)
    assert found is not None
    assert (found.part, found.profile, found.saving_gpu_ms) == ("share", "1/4", 252 * HOUR_MS)


def test_a_board_of_unknown_memory_size_is_shared_rather_than_given_a_guessed_profile():
    assert find_board("NVIDIA A100-SXM-64GB", 64 * GIB) is None
    found = fit(model="NVIDIA A100-SXM-64GB", memory_total_bytes=64 * GIB)
    assert found is not None
    assert found.part == "share"


def test_the_memory_of_a_known_model_is_used_where_it_was_not_measured():
    assert profile_of(memory_total_bytes=None) == "1g.10gb"
    assert profile_of(memory_total_bytes=None, model="something else") is None


@pytest.mark.parametrize(
    "doubt",
    [
        {"core_peak_ratio": None},
        {"memory_peak_bytes": None},
        {"active_gpu_ms": 0},
        {"allocated_gpu_ms": 23 * HOUR_MS},
        {"unmeasured_gpu_ms": 40 * HOUR_MS},
    ],
)
def test_never_suggests_for_an_idle_a_new_or_a_poorly_measured_workload(doubt: dict[str, object]):
    assert fit(**doubt) is None


def test_without_a_price_the_saving_is_in_time_only():
    found = fit(cost_micros=0)
    assert found is not None
    assert found.saving_micros is None
    assert found.saving_gpu_ms > 0


def test_the_largest_saving_comes_first():
    found = find_smaller([SMALL, replace(SMALL, name="larger", cost_micros=2 * SMALL.cost_micros)])
    assert [each.name for each in found] == ["larger", "embed"]


@given(
    board=st.sampled_from(BOARDS),
    core=st.floats(min_value=0, max_value=1),
    memory=st.floats(min_value=0, max_value=1),
)
def test_a_suggested_part_always_holds_the_peaks(board: object, core: float, memory: float):
    total = board.memory_mib * MIB
    model = "NVIDIA " + " ".join(
        sorted(board.words, key=["RTX", "PRO", "6000"].index if len(board.words) > 1 else None)
    )
    holder = replace(
        SMALL, model=model, memory_total_bytes=total, core_peak_ratio=core, memory_peak_bytes=int(memory * total)
    )
    for found in find_smaller([holder]):
        profile = {each.name: each for each in board.profiles}[found.profile]
        assert core < profile.compute
        assert memory < profile.memory
        assert 0 < found.saving_gpu_ms < holder.allocated_gpu_ms
