from itertools import pairwise
from statistics import mean

from gpusteward.simulate.seeded_random import SeededRandom, hash_to_unit


def test_the_same_arguments_give_the_same_value():
    assert hash_to_unit(7, 11) == hash_to_unit(7, 11)
    assert SeededRandom(7).between(2, 3, "a") == SeededRandom(7).between(2, 3, "a")
    assert SeededRandom(7).uuid("pod", 3) == SeededRandom(7).uuid("pod", 3)


def test_values_are_the_published_ones_of_splitmix64():
    assert hash_to_unit(1234567, 1) == (6457827717110365317 >> 11) / 2**53
    assert hash_to_unit(1234567, 2) == (3203168211198807973 >> 11) / 2**53


def test_draws_stay_the_same_from_release_to_release():
    assert SeededRandom(1).number("a") == 4923302134452111476


def test_units_lie_in_their_interval_and_spread_over_it():
    values = [hash_to_unit(42, number) for number in range(-2000, 2000)]
    assert all(0 <= value < 1 for value in values)
    assert abs(mean(values) - 0.5) < 0.02
    assert abs(mean(abs(a - b) for a, b in pairwise(values)) - 1 / 3) < 0.02


def test_draws_differ_by_name_and_seed():
    draws = {SeededRandom(seed).number(name) for seed in range(50) for name in ("a", "b", ("a", "b"))}
    assert len(draws) == 150


def test_a_uuid_looks_like_one():
    assert [len(part) for part in SeededRandom(3).uuid("x").split("-")] == [8, 4, 4, 4, 12]
