"""`gpusteward policies`: the policies in effect, or an example."""

import json
from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.policies.file import parse_policies
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.cli.main import main
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import running_api


def test_the_example_is_a_valid_policy_file_and_needs_no_analyzer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "--example", "--server", "http://127.0.0.1:1"]) == 0
    names = [each.name for each in parse_policies(capsys.readouterr().out, where="example").policies]
    assert names == ["interactive", "batch", "serving"]


def test_policies_or_why_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text("policies: [{name: night, action: suspend, window: 2h, match: {namespaces: team-a}}, {name: rest}]")
    settings = Settings.model_validate({"reclaim": {"policy_file": path}})
    policies = WatchedPolicies(path)
    with running_api(small_result(), settings=settings, policies=policies) as api:
        assert main(["policies", "--server", api.url]) == 0
        out = capsys.readouterr().out
        assert [line.split()[0] for line in out.splitlines()[1:]] == ["night", "rest"]
        assert "namespaces: team-a" in out
        assert "notify" in out, "a policy without action"
        assert main(["doctor", "--server", api.url, "-o", "json"]) in (0, 1)
        assert "line 3" not in capsys.readouterr().out
        path.write_text("policies: []")
        policies.poll()
        assert main(["policies", "--server", api.url]) == 0
        assert "at most notified" in capsys.readouterr().err
        path.write_text("policies:\n- name: night\n  windw: 2h\n")
        policies.poll()
        assert main(["policies", "--server", api.url]) == 1
        assert "line 3" in capsys.readouterr().err
        main(["doctor", "--server", api.url, "-o", "json"])
        [found] = [each for each in json.loads(capsys.readouterr().out) if "line 3" in each["finding"]]
        assert "reclaim.policy_file" in found["mend"]
