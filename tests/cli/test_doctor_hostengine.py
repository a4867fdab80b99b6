"""`gpusteward doctor` about the DCGM hostengine of the agent, on a fake libdcgm of DCGM 3 and 4."""

import os
from pathlib import Path

import pytest

from gpusteward.cli.doctor.check_results import CheckStatus
from gpusteward.cli.doctor.node import check_hostengine, find_hostengine
from gpusteward.cli.main import main
from gpusteward.core.errors import ConfigurationError
from tests.cli.test_doctor import diagnose
from tests.fakes.dcgm_library import DcgmScenario, FakeDcgm, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ADDRESS = "nvidia-dcgm:5555"


def two_kinds_of_gpus() -> DcgmScenario:
    scenario = DcgmScenario()
    scenario.listen(ADDRESS)
    scenario.gpu(0, "GPU-a", supports=(1001, 1004))
    scenario.gpu(1, "GPU-b", supports=(1001, 1004))
    scenario.gpu(2, "GPU-geforce", supports=())
    return scenario


@pytest.mark.parametrize("major", [3, 4])
def test_it_shows_what_the_hostengine_gives(major: int, tmp_path: Path) -> None:
    two_kinds_of_gpus().write(tmp_path / "dcgm")
    env = {**environment(tmp_path / "dcgm", major), "DCGM_REMOTE_HOSTENGINE_INFO": ADDRESS}
    _, found = diagnose(env=env)
    responds, fields, none = found["dcgm"]
    assert responds["finding"] == f"the hostengine nvidia-dcgm:5555 responds; DCGM {major}.1.2, 3 GPUs"
    assert fields["status"] == "ok"
    expected = "DCGM_FI_PROF_GR_ENGINE_ACTIVE, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
    assert fields["finding"] == f"2 GPUs (such as GPU-a): {expected}"
    assert (none["status"], "GPU-geforce" in none["finding"]) == ("warn", True)


@pytest.mark.parametrize("fake_dcgm", [4], indirect=True)
def test_an_unreachable_hostengine_is_explained(
    fake_dcgm: FakeDcgm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    main(["doctor", "--dcgm-hostengine", "gone:5555"])
    printed = capsys.readouterr().out
    assert "fail  dcgm" in printed
    assert "hostengine gone:5555 cannot be used" in printed
    assert "libdcgm of the same major version" in printed


@pytest.mark.parametrize("fake_dcgm", [4], indirect=True)
def test_a_hostengine_that_hangs_is_given_up(fake_dcgm: FakeDcgm) -> None:
    scenario = two_kinds_of_gpus()
    scenario.faults = ["hang dcgmConnect_v2"]
    fake_dcgm.load(scenario)
    (result,) = check_hostengine(find_hostengine(ADDRESS, {}), timeout_seconds=0.1)
    assert result.status is CheckStatus.FAIL
    assert "did not respond within 0 s" in result.finding
    fake_dcgm.load(DcgmScenario())
    wait_until(lambda: not fake_dcgm.is_initialised)  # the abandoned call has ended


def test_without_a_hostengine_the_check_is_skipped() -> None:
    (result,) = check_hostengine(find_hostengine(None, {"DCGM_REMOTE_HOSTENGINE_INFO": ""}))
    assert result.status is CheckStatus.SKIP


def test_an_invalid_address_names_its_variable() -> None:
    with pytest.raises(ConfigurationError, match="DCGM_REMOTE_HOSTENGINE_INFO: '5555': write HOST:PORT"):
        find_hostengine(None, {**os.environ, "DCGM_REMOTE_HOSTENGINE_INFO": "5555"})
