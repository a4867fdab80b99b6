from itertools import pairwise
from statistics import mean

from gpusteward.simulate.noise import Chance, unit


def test_the_same_question_gets_the_same_answer():
    assert unit(7, 11) == unit(7, 11)
    assert Chance(7).between(2, 3, "a") == Chance(7).between(2, 3, "a")
    assert Chance(7).uuid("pod", 3) == Chance(7).uuid("pod", 3)


def test_answers_are_the_published_ones_of_splitmix64():
    assert unit(1234567, 1) == (6457827717110365317 >> 11) / 2**53
    assert unit(1234567, 2) == (3203168211198807973 >> 11) / 2**53


def test_draws_stay_the_same_from_release_to_release():
    assert Chance(1).number("a") == 4923302134452111476


def test_units_lie_in_their_interval_and_spread_over_it():
    values = [unit(42, number) for number in range(-2000, 2000)]
    assert all(0 <= value < 1 for value in values)
    assert abs(mean(values) - 0.5) < 0.02
    assert abs(mean(abs(a - b) for a, b in pairwise(values)) - 1 / 3) < 0.02


def test_names_and_seeds_tell_draws_apart():
    draws = {Chance(seed).number(name) for seed in range(50) for name in ("a", "b", ("a", "b"))}
    assert len(draws) == 150


def test_a_uuid_looks_like_one():
    assert [len(part) for part in Chance(3).uuid("x").split("-")] == [8, 4, 4, 4, 12]
