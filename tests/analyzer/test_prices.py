"""Prices of a GPU-hour by model and namespace, in integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpusteward.analyzer.prices import (
    HIGHEST_PRICE,
    HOUR_MS,
    MICROS,
    PriceList,
    PriceSettings,
    cost_of,
    costs_of,
    electricity_of,
)

PRICES = PriceList(
    PriceSettings(
        per_gpu_hour={"*": 1, "A100": 2, "A100 80GB": 3.1, "L4": 0.5, "rtx 4090": 0.7},
        discount_percent={"research": 12.5, "free": 100},
    )
)


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("NVIDIA A100-SXM4-40GB", 2),
        ("NVIDIA A100-SXM4-80GB", 3.1),
        ("NVIDIA-A100-80GB-PCIe", 3.1),
        ("NVIDIA GeForce RTX 4090", 0.7),
        ("NVIDIA L4", 0.5),
        ("NVIDIA L40S", 1),
        ("NVIDIA A1000", 1),
        ("", 1),
    ],
)
def test_the_longest_matching_name_sets_the_price_of_a_model(model: str, price: float):
    assert PRICES.micros_per_gpu_hour(model, "vision") == round(price * MICROS)


def test_a_discount_lowers_the_price_of_a_namespace():
    assert PRICES.micros_per_gpu_hour("NVIDIA A100-SXM4-80GB", "research") == 2_712_500
    assert PRICES.micros_per_gpu_hour("NVIDIA A100-SXM4-80GB", "free") == 0


def test_without_a_price_list_nothing_has_a_price():
    assert PriceList(PriceSettings()).micros_per_gpu_hour("NVIDIA H100 80GB HBM3", "vision") == 0


@given(
    st.lists(
        st.tuples(
            st.integers(min_value=0, max_value=400 * 24 * HOUR_MS),
            st.integers(min_value=0, max_value=HIGHEST_PRICE * MICROS // 100),
        ),
        max_size=20,
    )
)
def test_the_cost_of_a_column_is_that_of_its_rows(rows: list[tuple[int, int]]):
    times, prices = (np.array([row[part] for row in rows], dtype=np.int64) for part in (0, 1))
    assert costs_of(times, prices).tolist() == [cost_of(*row) for row in rows]


def test_the_highest_price_does_not_overflow():
    highest = np.array([HIGHEST_PRICE * MICROS], dtype=np.int64)
    assert costs_of(np.array([HOUR_MS - 1]), highest).tolist() == [cost_of(HOUR_MS - 1, HIGHEST_PRICE * MICROS)]


def test_electricity_has_a_cost_only_where_its_price_is_set():
    one_kilowatt_hour = 3_600_000_000
    assert electricity_of(one_kilowatt_hour, PriceSettings(electricity_per_kwh=0.25)) == 250_000
    assert electricity_of(one_kilowatt_hour, PriceSettings()) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"currency": "dollars"},
        {"per_gpu_hour": {"*": -1}},
        {"per_gpu_hour": {"*": float("nan")}},
        {"per_gpu_hour": {"A100": float("inf")}},
        {"discount_percent": {"research": 101}},
    ],
)
def test_an_impossible_price_is_refused(wrong: dict[str, object]):
    with pytest.raises(ValidationError):
        PriceSettings.model_validate(wrong)


def test_the_price_cache_does_not_grow_with_namespaces():
    prices = PriceList(PriceSettings(per_gpu_hour={"A100": 2.0}, discount_percent={"team": 50}))
    assert {prices.micros_per_gpu_hour("A100", f"ci-{number}") for number in range(100)} == {2_000_000}
    assert prices.micros_per_gpu_hour("A100", "team") == 1_000_000
    assert len(prices.cached) == 2
