"""The demo in enforce mode: a person watches warning, snooze by the link, suspend and restore."""

import io
import os
import re
import urllib.request
from pathlib import Path

import msgspec
import pytest
import yaml

from gpusteward.analyzer.reclaim.policies.file import parse_policies
from gpusteward.local.demo_servers import DemoInbox
from gpusteward.local.demo_settings import POLICIES
from tests.local.processes import Program, running
from tests.waiting import wait_until

QUICK = ("scrape.interval=5", "scheduler.interval=5", "prometheus.time_window_min=1")


def find_action(demo: Program, name: str) -> dict:
    return next(each for each in demo.get("/api/v1/actions")["items"] if each["name"] == name)


def explain(demo: Program, name: str) -> str:
    """Why it is not acted on."""
    rows = [each for each in demo.get("/api/v1/plan")["items"] if each["name"] == name]
    answers = [each for row in rows for each in row["answers"] if each["passed"] is not True]
    return f"{find_action(demo, name)['steps'][-1]} {answers}"


def post(demo: Program, path: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(demo.url + path, b"", method="POST"), timeout=60) as response:
        return response.read().decode()


def holds_gpus(demo: Program, name: str) -> bool:
    return bool(demo.get(f"/api/v1/workloads?q={name}&limit=1")["items"])


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(420)
def test_a_person_can_watch_warning_snooze_suspend_and_restore(tmp_path: Path):
    flags = [word for each in QUICK for word in ("--set", each)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    with running("demo", "--address", "127.0.0.1:0", "--nodes", "40", *flags, env=environment) as demo:
        demo.wait_for_address(120)

        def list_warned() -> list[dict]:
            return [each for each in demo.get("/api/v1/actions?state=warned")["items"] if each["warnings"]]

        wait_until(lambda: len(list_warned()) >= 3, seconds=120)
        rows = demo.get("/api/v1/plan?outcome=wait&outcome=warn&outcome=act")["items"]
        assert {each["namespace"] for each in rows} == {"student-projects"}, "most idle workloads are only reported"
        warned = {each["name"] for each in list_warned()}  # others of the plan may get their warning later
        snoozed, watched = [each for each in rows if each["name"] in warned][:2]  # the plan acts in this order

        path = f"/api/v1/workloads/{snoozed['kind']}/{snoozed['namespace']}/{snoozed['name']}/snooze"
        body = b'{"hours": 4, "reason": "still needed"}'
        request = urllib.request.Request(demo.url + path, body, {"Content-Type": "application/json"}, method="POST")
        urllib.request.urlopen(request, timeout=60).close()

        wait_until(
            lambda: find_action(demo, watched["name"])["state"] in ("acted", "verified"),
            seconds=240,
            about=lambda: explain(demo, watched["name"]),
        )
        wait_until(lambda: not holds_gpus(demo, watched["name"]), seconds=120)
        assert holds_gpus(demo, snoozed["name"]), "never while it is snoozed"
        action = find_action(demo, watched["name"])
        assert action["warnings"][0]["delivered_at"] is not None, "never without a delivered warning"

        post(demo, f"/api/v1/actions/{action['id']}/restore")
        assert find_action(demo, watched["name"])["state"] == "restored"
        wait_until(lambda: holds_gpus(demo, watched["name"]), seconds=120)
        demo.interrupt()


def test_the_policies_of_the_demo_are_valid_and_act_in_one_namespace_only():
    file = parse_policies(yaml.safe_dump(POLICIES), where="demo")
    assert [(each.name, str(each.action)) for each in file.policies] == [
        ("demo-quick", "suspend"),
        *((name, "notify") for name in ("interactive", "batch", "serving")),
    ]
    assert file.policies[0].match.namespaces == ["student-projects"]
    assert file.policies[0].limits.per_hour == 6


def test_the_inbox_prints_titles_and_the_first_link():
    out = io.StringIO()
    DemoInbox(out).receive(
        b'{"text": "x", "blocks": [{"type": "header", "text": {"text": "Idle GPUs"}},'
        b'{"type": "actions", "elements": [{"text": {"text": "Snooze for 4 h"}, "url": "http://a"},'
        b'{"text": {"text": "8 h"}, "url": "http://b"}]}]}'
    )
    assert re.findall(".+", out.getvalue()) == ["* Idle GPUs", "  Snooze for 4 h: http://a"]
    with pytest.raises(msgspec.DecodeError):
        DemoInbox(out).receive(b"[")
