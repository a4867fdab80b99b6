"""Policies: which one applies, what annotations may change, what a bad file or annotation leads to."""

from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.analyzer.reclaim.decisions.workloads import make_metadata
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.kinds.targets import WorkloadObjects
from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.reclaim.policies.file import NO_POLICIES, PolicyFile, parse_policies, read_hours
from gpusteward.analyzer.reclaim.policies.policy import (
    ACTION,
    ACTION_ORDER,
    GRACE,
    INTERCHANGEABLE,
    KEEP,
    WARNINGS,
    WINDOW,
    Limits,
    ReclaimAction,
)
from gpusteward.analyzer.reclaim.policies.pool_rule import KEEN, PRESETS, KeepRule
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies, WorkloadMetadata, resolve_policy
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.kinds import WorkloadClass
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.yaml_lines import CLIENT_LIMITS

NOTEBOOK = WorkloadMetadata(WorkloadKey("Notebook", "team-a", "nb", "east"), models=("NVIDIA H100 80GB HBM3",))
SERVER = WorkloadMetadata(WorkloadKey("Deployment", "team-a", "llm"))
JOB = WorkloadMetadata(WorkloadKey("PyTorchJob", "team-b", "train"))


def policies(text: str) -> PolicyFile:
    return parse_policies(text, where="policies.yaml")


FILE = policies(EXAMPLE)


def with_annotations(facts: WorkloadMetadata, namespace: dict[str, str] | None = None, **own: str) -> WorkloadMetadata:
    names = {"keep": KEEP, "window": WINDOW, "grace": GRACE, "action": ACTION, "warnings": WARNINGS}
    names["interchangeable"] = INTERCHANGEABLE
    return WorkloadMetadata(
        facts.key,
        facts.models,
        annotations={names[name]: value for name, value in own.items()},
        namespace_annotations=namespace or {},
    )


def test_the_example_acts_on_every_class_by_its_window():
    notebook, job, server = (resolve_policy(FILE, each) for each in (NOTEBOOK, JOB, SERVER))
    assert (notebook.workload_class, notebook.window_seconds) == (WorkloadClass.INTERACTIVE, 3600)
    assert (job.workload_class, job.window_seconds) == (WorkloadClass.BATCH, 5 * 3600)
    assert (server.workload_class, server.window_seconds) == (WorkloadClass.SERVING, 7200)
    assert notebook.name == "interactive"
    assert (notebook.action, job.action) == (ReclaimAction.SUSPEND, ReclaimAction.SUSPEND)
    assert (notebook.warnings, job.warnings) == (1, 2)
    assert notebook.origins["window"] == "policy interactive"
    assert (notebook.highest_chance, server.highest_chance) == (0.3, None)


def test_the_example_has_the_defaults_of_each_class():
    named = policies("policies: [{name: all}]")
    for facts in (NOTEBOOK, JOB, SERVER):
        example, default = resolve_policy(FILE, facts), resolve_policy(named, facts)
        for field in ("window_seconds", "grace_seconds", "highest_chance", "warnings", "warning_interval_seconds"):
            assert getattr(example, field) == getattr(default, field), (facts.key.kind, field)


@pytest.mark.parametrize("facts", [NOTEBOOK, JOB, SERVER, WorkloadMetadata(WorkloadKey("Pod", "team-a", "lonely"))])
@pytest.mark.parametrize(
    "text", ["policies: []", "policies: [{name: narrow, action: suspend, match: {namespaces: team-z}}]"]
)
def test_what_no_policy_of_the_file_matches_is_at_most_notified(text, facts):
    for subject in (facts, with_annotations(facts, interchangeable="true", action="suspend")):
        found = resolve_policy(policies(text), subject)
        assert (found.action, found.is_default) == (ReclaimAction.NOTIFY, True)


@pytest.mark.parametrize("facts", [NOTEBOOK, JOB, SERVER])
def test_a_policy_without_an_action_notifies_and_has_the_other_defaults_of_the_class(facts):
    found = resolve_policy(policies("policies: [{name: quiet, window: 3h, interchangeable: true}]"), facts)
    assert (found.name, found.action, found.is_default) == ("quiet", ReclaimAction.NOTIFY, False)
    assert found.window_seconds == 3 * 3600
    assert found.grace_seconds == {"Notebook": 1800, "PyTorchJob": 3600, "Deployment": 600}[facts.key.kind]


def test_all_is_written_as_a_star_or_left_out():
    star = "{clusters: '*', namespaces: '*', kinds: ['*'], models: '*', classes: '*', priority_classes: '*'}"
    for text in (f"policies: [{{name: a, match: {star}}}]", "policies: [{name: a}]"):
        for facts in (NOTEBOOK, JOB, SERVER):
            assert resolve_policy(policies(text), facts).name == "a"


def test_an_unknown_kind_gets_the_longest_window():
    unknown = resolve_policy(FILE, WorkloadMetadata(WorkloadKey("Spaceship", "a", "b")))
    assert unknown.window_seconds == 5 * 3600


def test_lowering_replicas_stays_advice_until_somebody_says_that_they_are_interchangeable():
    advice = resolve_policy(FILE, SERVER)
    assert advice.action is ReclaimAction.NOTIFY
    assert not advice.is_pool
    assert "interchangeable" in advice.problems[0].en
    opted_in = resolve_policy(FILE, with_annotations(SERVER, interchangeable="true"))
    assert (opted_in.action, opted_in.is_pool, opted_in.keep) == (ReclaimAction.SCALE_TO_KEEP, True, None)
    file = policies(
        "policies: [{name: pools, action: scale-to-keep, interchangeable: true, keep: {window: 90m, headroom: 1.5}}]"
    )
    assert resolve_policy(file, SERVER).keep == KeepRule(5400, headroom=1.5)
    opted_out = with_annotations(SERVER, interchangeable="false")
    assert resolve_policy(file, opted_out).action is ReclaimAction.NOTIFY


def test_replicas_with_an_identity_are_no_pool():
    file = policies("policies: [{name: pools, action: scale-to-keep, interchangeable: true}]")
    found = resolve_policy(file, WorkloadMetadata(WorkloadKey("StatefulSet", "a", "b")))
    assert (found.action, found.is_pool) == (ReclaimAction.NOTIFY, False)


@pytest.mark.parametrize(("name", "rule"), PRESETS.items())
def test_a_pool_rule_has_a_name_or_numbers(name, rule):
    text = "policies: [{{name: pools, action: scale-to-keep, interchangeable: true, keep: {}}}]"
    assert resolve_policy(policies(text.format(name)), SERVER).keep == rule
    numbers = "{window: 90m, quantile: 0.95, headroom: 1.25, recent: 10m, patience: 30m}"
    assert resolve_policy(policies(text.format(numbers)), SERVER).keep == KEEN
    with pytest.raises(ConfigurationError, match=r"policies\[0\].keep.*must be one of careful, keen, or numbers"):
        policies(text.format("greedy"))
    with pytest.raises(ConfigurationError, match=r"policies\[0\].keep.patience"):
        policies(text.format("{patience: 4h}"))


def test_the_first_policy_that_matches_counts_and_the_rest_comes_from_the_default():
    file = policies("""
policies:
  - name: labelled
    match: {labels: {team: "ml-*"}}
    window: 4h
  - name: east-notebooks
    match: {clusters: [east], namespaces: "team-*", kinds: Notebook, models: ["*H100*"], classes: [interactive]}
    window: 2h
    limits: {per_hour: 3}
    quiet_hours: "22:00-08:00"
    time_zone: Asia/Shanghai
  - name: rest
    action: notify
""")
    found = resolve_policy(file, NOTEBOOK)
    assert (found.name, found.window_seconds, found.grace_seconds) == ("east-notebooks", 7200, 1800)
    assert found.limits == Limits(5, 2, 3)
    assert (found.origins["window"], found.origins["grace"]) == ("policy east-notebooks", "default-interactive")
    assert found.quiet_hours is not None
    assert found.quiet_hours.zone == "Asia/Shanghai"
    assert resolve_policy(file, JOB).name == "rest"
    labelled = WorkloadMetadata(NOTEBOOK.key, labels={"team": "ml-vision"})
    assert resolve_policy(file, labelled).window_seconds == 4 * 3600


def test_the_nearest_annotation_wins():
    facts = with_annotations(NOTEBOOK, {WINDOW: "8h", GRACE: "3h"}, window="4h")
    found = resolve_policy(FILE, facts)
    assert (found.window_seconds, found.grace_seconds) == (4 * 3600, 3 * 3600)
    assert (found.origins["window"], found.origins["grace"]) == ("workload annotation", "namespace annotation")


def test_never_less_careful_by_an_annotation():
    file = policies("policies: [{name: careful, action: notify, window: 10h, grace: 5h, warnings: 3}]")
    facts = with_annotations(NOTEBOOK, window="1h", grace="1m", warnings="1", action="suspend")
    found = resolve_policy(file, facts)
    assert (found.window_seconds, found.grace_seconds, found.warnings) == (36_000, 18_000, 3)
    assert found.action is ReclaimAction.NOTIFY
    assert len(found.problems) == 4


words = st.sampled_from(
    ["true", "false", "1m", "9h", "suspend", "notify", "evict", "2", "0", "x", "", "2031-01-01", "-1"]
)
annotations = st.dictionaries(st.sampled_from([KEEP, WINDOW, GRACE, ACTION, WARNINGS]), words)


@given(annotations, annotations)
def test_no_annotation_makes_a_policy_less_careful(own, namespace):
    plain = resolve_policy(FILE, NOTEBOOK)
    found = resolve_policy(FILE, WorkloadMetadata(NOTEBOOK.key, annotations=own, namespace_annotations=namespace))
    assert found.window_seconds >= plain.window_seconds
    assert found.grace_seconds >= plain.grace_seconds
    assert found.warnings >= plain.warnings
    assert ACTION_ORDER.index(found.action) <= ACTION_ORDER.index(plain.action)
    assert (found.limits, found.highest_chance) == (plain.limits, plain.highest_chance)


@pytest.mark.parametrize(
    ("value", "until"),
    [
        ("true", inf),
        ("TRUE", inf),
        ("2027-01-31", 1801440000.0),
        ("2027-01-31T08:00:00+08:00", 1801353600.0),
        ("false", None),
    ],
)
def test_keep_is_true_or_a_date(value, until):
    found = resolve_policy(FILE, with_annotations(NOTEBOOK, keep=value))
    assert found.keep_until == until
    assert found.problems == ()
    assert found.is_kept(1801353599.0) == (until is not None)


@pytest.mark.parametrize("value", ["yesterdayish", "2027-13-45", "tomorrow", "maybe", "31.01.2027"])
def test_a_keep_that_cannot_be_read_keeps_the_workload_and_is_said(value):
    found = resolve_policy(FILE, with_annotations(NOTEBOOK, keep=value))
    assert found.is_kept(4e9)
    assert value in found.problems[0].en
    assert value in found.problems[0].zh


def test_a_window_that_cannot_be_read_keeps_the_workload():
    found = resolve_policy(FILE, with_annotations(NOTEBOOK, window="long"))
    assert found.is_kept(4e9)
    assert "idle-window" in found.problems[0].en


LARGE = {"window": "99999999999999h", "grace": f"{'9' * 5000}h", "warnings": "9" * 5000}


@pytest.mark.parametrize("name", LARGE)
def test_an_absurdly_large_wish_is_careful_and_can_still_be_shown(name):
    found = resolve_policy(FILE, with_annotations(NOTEBOOK, **{name: LARGE[name]}))
    assert found.is_kept(4e9) or found.warnings == 10
    assert datetime.fromtimestamp(1.8e9 + found.window_seconds + found.grace_seconds, UTC).year < 2100


BARE_POD = "policies:\n  - name: a\n    action: evict\n    warnings: 1\n"


def test_a_pod_that_is_gone_for_good_takes_two_warnings():
    pod = WorkloadMetadata(WorkloadKey("Pod", "team-a", "lonely"))
    assert resolve_policy(policies(BARE_POD), pod).warnings == 2
    assert resolve_policy(policies(BARE_POD.replace("evict", "suspend")), pod).warnings == 1


@pytest.mark.parametrize(
    "values", [("2027-01-31", "false"), ("false", "2027-01-31"), ("2027-01-31", "2026-12-01"), ("1", "2027-01-31")]
)
def test_the_longest_keep_of_pod_and_owner_counts(values):
    owner, pod = (
        KubeObject("v1", kind, {"metadata": {"uid": kind, "annotations": {KEEP: value}}})
        for kind, value in zip(("Notebook", "Pod"), values, strict=True)
    )
    subject = make_metadata(NOTEBOOK.key, WorkloadObjects(owner, [pod], [[owner]]), models=(), namespace_annotations={})
    assert resolve_policy(FILE, subject).is_kept(1801353599.0)


BAD = {
    "policies:\n  - name: a\n    windw: 1h\n": ("policies.yaml line 3", "policies[0].windw", "did you mean window?"),
    "policies:\n  - name: a\n    window: soon\n": ("line 3", "'soon'", "write a duration"),
    "policies:\n  - name: a\n    window: 1m\n": ("line 3", "policies[0].window", "greater than or equal to 600"),
    "policies:\n  - window: 1h\n": ("line 2", "policies[0].name", "required"),
    "policies:\n  - name: a\n  - name: a\n": (
        "line 1",
        "the name a is used twice",
    ),
    "policies:\n  - name: a\n    warnings: 0\n": ("line 3", "policies[0].warnings", "greater than or equal to 1"),
    "policies:\n  - name: a\n    action: delete\n": ("line 3", "policies[0].action", "'suspend'"),
    "policies:\n  - name: a\n    quiet_hours: nights\n": ("line 3", "22:00-08:00"),
    "policies:\n  - name: a\n    time_zone: Mars/Olympus\n": ("line 3", "time_zone"),
    "policies:\n  - name: a\n    action: suspend\n    limits: {per_cycle: 0}\n": ("line 2", "never allows the action"),
    "policies:\n  - name: a\n    match: {namespace: b}\n": ("line 3", "did you mean namespaces?"),
    "policies:\n  - name: a\n    warnings: '2'\n": ("line 3", "policies[0].warnings", "valid integer"),
    "policies:\n  - name: a\n    on_pressure: 'yes'\n": ("line 3", "policies[0].on_pressure", "valid boolean"),
    "policies:\n  - name: a\n    highest_chance: true\n": ("line 3", "policies[0].highest_chance", "valid number"),
    "policies:\n  - name: a\n    window: [1h]\n": ("line 3", "policies[0].window", "valid number"),
    "policies:\n  - name: a\n    limits: 5\n": ("line 3", "policies[0].limits"),
    "policies:\n  - name: a\n    limits: {per_hour: '3'}\n": ("line 3", "policies[0].limits.per_hour"),
    "policies:\n  - name: a\n    action: [suspend]\n": ("line 3", "policies[0].action"),
    "policies:\n  - name: a\n    match: {namespaces: 5}\n": ("line 3", "policies[0].match.namespaces", "valid list"),
    "policies:\n  - name: a\n    match: {labels: {team: 5}}\n": ("line 3", "match.labels.team", "valid string"),
    "policies:\n  - name: a\n    window:\n": ("line 3", "policies[0].window", "the value is missing"),
    "policies:\n  - name: 5\n": ("line 2", "policies[0].name", "valid string"),
    "policies:\n  a: b\n": ("policies (policies.yaml line 2)", "valid list"),
    "policies:\n  - name: a\n    working_hours: ''\n": ("line 3", "policies[0].working_hours", "write hours"),
    "policies:\n  - name: a\n    quiet_hours: ' '\n": ("line 3", "policies[0].quiet_hours", "write hours"),
    "# a list\n- a": ("policies.yaml line 2", "key policies"),
    "\npolicies\n": ("policies.yaml line 2", "key policies"),
    "policies: [": ("policies.yaml", "YAML"),
}


@pytest.mark.parametrize(("text", "parts"), BAD.items(), ids=[key.split("\n")[-2:][0][:40] for key in BAD])
def test_a_bad_policy_is_refused_with_its_line_and_what_to_write(text, parts):
    with pytest.raises(ConfigurationError) as raised:
        policies(text)
    for part in parts:
        assert part in str(raised.value)
    assert raised.value.text("zh")


@pytest.mark.parametrize("value", ['""', "[]", "", '[""]', '[" "]', "{}"])
@pytest.mark.parametrize("name", ["clusters", "namespaces", "labels", "kinds", "models", "classes", "priority_classes"])
def test_never_matches_everything_by_an_empty_match_field(name, value):
    with pytest.raises(ConfigurationError) as raised:
        policies(f"policies:\n  - name: a\n    action: suspend\n    match:\n      {name}: {value}\n")
    assert f"policies[0].match.{name}" in str(raised.value)
    assert "line 5" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("policies:\n- {name: a}\npolicies:\n- {name: b, action: suspend}\n", "policies", 3),
        ("policies:\n- name: a\n  action: notify\n  action: suspend\n", "action", 4),
        ("policies:\n- name: a\n  match: {namespaces: a}\n  match: {kinds: '*'}\n", "match", 4),
        ("policies:\n- name: a\n  match: {namespaces: a, namespaces: '*'}\n", "namespaces", 3),
    ],
)
def test_never_acts_by_the_second_of_two_equal_keys(text, key, line):
    """The last would count, and what the first one kept safe would be gone without a word."""
    for read in (policies, lambda text: parse_policies(text, where="policies.yaml", limits=CLIENT_LIMITS)):
        with pytest.raises(ConfigurationError) as raised:
            read(text)
        assert f"policies.yaml line {line}" in str(raised.value)
        assert f"the key {key} is written twice" in str(raised.value)


def test_a_key_may_replace_that_of_an_anchor():
    text = "policies:\n- &a {name: a, match: {namespaces: a}, action: suspend}\n- {<<: *a, name: b, action: notify}\n"
    assert [(one.name, one.action) for one in policies(text).policies] == [("a", "suspend"), ("b", "notify")]


@pytest.mark.parametrize("value", ["", "{}"])
def test_never_matches_everything_by_an_empty_match(value):
    with pytest.raises(ConfigurationError, match=r"policies\[0\]\.match \(policies\.yaml line 3\)"):
        policies(f"policies:\n  - name: a\n    match: {value}\n")


UNUSABLE = {
    "missing": None,
    "empty": "",
    "only comments": "# policies\n",
    "null": "null\n",
    "an empty document": "---\n",
    "cut off": "policies:\n",
    "another mapping": "{}\n",
    "not YAML": "policies: [",
    "invalid": "policies: [{name: second, window: never}]",
    "of another type": "policies: [{name: second, action: suspend, warnings: 'two'}]",
}


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=list(UNUSABLE))
def test_a_file_that_cannot_be_used_leaves_no_policies_at_the_start_and_later(tmp_path, text):
    path = tmp_path / "policies.yaml"
    path.write_text("policies: [{name: first, action: suspend, window: 2h}]")
    watched = WatchedPolicies(path)
    assert (watched.poll().policies[0].name, watched.error) == ("first", None)
    path.unlink()
    if text is not None:
        path.write_text(text)
    for _ in range(3):
        assert watched.poll() == NO_POLICIES
    restarted = WatchedPolicies(path)
    assert (restarted.current, restarted.error) == (watched.current, watched.error), "a restart changes nothing"
    assert watched.error is not None
    assert "policies.yaml" in watched.error.en
    assert text is None or "policies.yaml line" in watched.error.en
    assert watched.reloads_refused == 1
    path.write_text("policies: [{name: third-one, window: 3h}]")
    assert watched.poll().policies[0].name == "third-one"
    assert watched.error is None


def test_acting_on_nothing_is_written_as_an_empty_list_and_is_no_error(tmp_path):
    path = tmp_path / "policies.yaml"
    path.write_text("policies: []")
    watched = WatchedPolicies(path)
    assert (watched.current, watched.error) == (NO_POLICIES, None)


def test_without_a_file_the_reason_says_how_to_write_one():
    watched = WatchedPolicies(None)
    assert watched.poll() == NO_POLICIES
    assert watched.error is not None
    assert "gpusteward policies --example" in watched.error.en
    assert "gpusteward policies --example" in watched.error.zh


def test_hours_may_span_midnight_and_belong_to_the_day_on_which_they_begin():
    night = read_hours("fri 22:00-06:00", "UTC")
    assert night is not None
    friday = 1_790_899_200.0  # Friday 2026-10-02 00:00 UTC
    assert [night.include(friday + hour * 3600) for hour in (3, 21, 23, 27, 29, 31)] == [
        False, False, True, True, True, False,
    ]  # fmt: skip
    office = read_hours("mon-fri 9:00-18:00", "Asia/Shanghai")
    assert office is not None
    assert office.include(friday + 2 * 3600)  # 10:00 in Shanghai
    assert not office.include(friday + 26 * 3600)  # Saturday
