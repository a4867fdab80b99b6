"""YAML of clients: documents that are small to send and expensive to read, and values that PyYAML cannot make."""

import json
import time
from collections.abc import Mapping

import pytest

from gpusteward.analyzer.reclaim.policies.file import parse_policies
from gpusteward.analyzer.settings.layers import from_text
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.core.errors import ConfigurationError
from gpusteward.yaml_lines import CLIENT_LIMITS, FILE_LIMITS, YamlLimits, parse_yaml
from tests.attacks.test_parsers import measure
from tests.attacks.victims import Victim, status_of

pytestmark = pytest.mark.slow

MOST_SECONDS = 0.25


def make_bomb(levels: int) -> str:
    """Nine aliases per line: 9 ** levels values."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def make_policy(field: str) -> str:
    return f"policies:\n  - name: a\n    {field}\n"


BOMBS: Mapping[str, str] = {
    "aliases": make_bomb(7),
    "merged aliases": "\n".join(
        ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 8))]
    ),
    "an alias of itself": "policies: &a [*a]",
}
ODD: Mapping[str, str] = {
    "a date that does not exist": make_policy("window: 2027-13-45"),
    "a date": make_policy("window: 2027-01-31"),
    "a date as a key": make_policy("2027-13-45: 1"),
    "a long integer": make_policy(f"warnings: {'9' * 5000}"),
    "a long hexadecimal integer": make_policy(f"warnings: 0x{'f' * 900}"),
    "sexagesimals": make_policy(f"warnings: 1{':59' * 300}"),
    "a sexagesimal fraction": make_policy(f"window: 1{':59' * 300}.5"),
    "a negative key": "-5:",
    "a negative key in a list": "policies:\n  - -5:\n",
    "no boolean": make_policy("on_pressure: !!bool x"),
    "no time": make_policy("window: !!timestamp x"),
    "no number": make_policy("window: !!float x"),
    "no integer": make_policy("warnings: !!int ''"),
    "a list as a key": "? [a]\n: b",
    "infinity": make_policy("window: .inf"),
    "not a number": make_policy("window: .nan"),
    "another tag": make_policy("window: !!python/object:os.system x"),
    "an unknown tag": make_policy("window: !x y"),
    "a surrogate": make_policy('window: "\\ud800"'),
    "nothing": "...",
    "two documents": "a: b\n---\nc: d",
}
CAP = CLIENT_LIMITS.characters
LONG: Mapping[str, str] = {
    name: (piece * (CAP // len(piece) + 1))[:CAP]
    for name, piece in {
        "lists": "[",
        "mappings": "{",
        "block lists": "- ",
        "questions": "? ",
        "flow items": "a,",
        "keys": "a: b\n",
        "unknown fields": "windw: 1h\n",
        "digits": "1",
        "tags": "!a ",
        "anchors": "&a ",
        "quotes": "'",
        "escapes": '"\\',
        "tabs": "\t",
        "comments": "#\n",
        "colons": ":",
        "colons and spaces": "a: ",
        "percent": "%",
        "lines": "\n",
        "spaces": " ",
        "minus": "-\n",
    }.items()
} | {
    "a list of lists": "[" + "[1]," * (CAP // 4 - 1) + "]",
    "a list of mappings": "[" + "{a: 1}," * (CAP // 7 - 1) + "]",
    "unknown fields of policies": "policies:\n" + "- {a: 1}\n" * (CAP // 9 - 2),
    "many different keys": "\n".join(f"k{number}: 1" for number in range(CAP // 9)),
}


@pytest.mark.parametrize("text", (BOMBS | ODD).values(), ids=BOMBS | ODD)
def test_replay_refuses_it_at_once(analyzer: Victim, text: str):
    body = json.dumps({"policy": text}).encode()
    with analyzer.attacked(cpu_seconds=0.5):
        response = analyzer.post("/api/v1/replay", body, "Content-Type: application/json")
    assert status_of(response) == 422, response
    assert b"policy" in response


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_at_its_largest(text: str):
    assert measure(lambda: parse_policies(text, where="policy", limits=CLIENT_LIMITS)) < MOST_SECONDS


def test_a_client_is_told_the_line_and_the_reason():
    with pytest.raises(ConfigurationError, match=r"policy line 1 .*aliases \(&name, \*name\) are not accepted here"):
        parse_policies("a: &a [1]\nb:\n  - *a\n  - *a", where="policy", limits=CLIENT_LIMITS)
    with pytest.raises(ConfigurationError, match=r"policy line 21 .*nested too deeply"):
        parse_policies("\n".join(f"{' ' * n}a:" for n in range(40)), where="policy", limits=CLIENT_LIMITS)
    with pytest.raises(ConfigurationError, match=r"policy line 2 .*too large"):
        parse_policies(f"a: 1\nb: {'x' * 1001}", where="policy", limits=CLIENT_LIMITS)


def test_files_may_have_aliases():
    text = "policies:\n  - &a {name: a, window: 2h}\n  - <<: *a\n    name: b\n"
    assert [each.window for each in parse_policies(text, where="policies.yaml").policies] == [7200.0, 7200.0]


@pytest.mark.parametrize("text", (BOMBS | ODD).values(), ids=BOMBS | ODD)
@pytest.mark.parametrize("limits", [FILE_LIMITS, CLIENT_LIMITS], ids=["file", "client"])
def test_a_file_is_refused_with_a_message_and_never_with_an_exception(text: str, limits: YamlLimits):
    begun = time.thread_time()
    with pytest.raises(ConfigurationError, match=r"policies\.yaml"):
        parse_policies(text, where="policies.yaml", limits=limits)
    assert time.thread_time() - begun < 10  # a file is read by a program that was told to: it must end, no more


@pytest.mark.parametrize("text", ["2027-13-45", "!!bool x", "[1, 2027-13-45]", "9" * 5000])
def test_a_variable_of_such_text_is_text(text: str):
    assert from_text(text, Settings.model_fields["auth"]) is not None
    assert from_text(text, ServerSettings.model_fields["address"]) == text


def test_the_line_of_a_value_that_cannot_be_made():
    with pytest.raises(ConfigurationError, match=r"config\.yaml line 3 is not YAML: unreadable"):
        parse_yaml("a: 1\nb:\n  c: 2027-13-45\n", where="config.yaml")
