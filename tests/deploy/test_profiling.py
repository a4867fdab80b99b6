"""Profiling before Hopper with one value of the chart: what is rendered, the copied libdcgm, a T4."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpusteward.agent.settings.table import read_settings
from tests.agent.test_agent_process import running
from tests.deploy.helm import CHART, Helm, HelmError
from tests.fakes import dcgm_library, nvml_library
from tests.fakes.dcgm_library import DcgmScenario
from tests.fakes.nvml_scenarios import Scenario, a100

Json = dict[str, Any]
ALONE = {"analyzer": {"enabled": False}}


def render(helm: Helm, hostengine: str, **agent: object) -> Json:
    """The pod of the agents."""
    objects = helm.template(CHART, {**ALONE, "agent": {"profiling": {"hostengine": hostengine}, **agent}})
    (daemon_set,) = [each for each in objects if each["kind"] == "DaemonSet"]
    return daemon_set["spec"]["template"]["spec"]


def find_container(pod: Json, name: str) -> Json:
    (found,) = [each for each in [*pod.get("initContainers", []), *pod["containers"]] if each["name"] == name]
    return found


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """What the init container finds in NVIDIA's image: a library behind links, as packages install it."""
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libdcgm.so.4.6.0").write_bytes(dcgm_library.build_library(4).read_bytes())
    (folder / "libdcgm.so.4").symlink_to("libdcgm.so.4.6.0")
    (folder / "libdcgm.so").symlink_to("libdcgm.so.4")
    (folder / "libdcgmmodulehealth.so.4").write_text("not needed")
    return tmp_path / "usr"


def copy_library(pod: Json, image: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command of the init container as the chart has it, with other folders."""
    *command, source, target = find_container(pod, "libdcgm")["command"]
    assert (source, target) == ("/usr", "/opt/dcgm/lib")
    folder.mkdir()
    return subprocess.run([*command, image, folder], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("hostengine", ["sidecar", "gpu-operator"])
def test_the_init_container_copies_libdcgm_out_of_the_image(hostengine: str, helm: Helm, image: Path, tmp_path: Path):
    pod = render(helm, hostengine)
    done = copy_library(pod, image, tmp_path / "copied")
    assert done.returncode == 0, done.stderr
    (copied,) = (tmp_path / "copied").iterdir()
    assert copied.name == "libdcgm.so.4"
    assert not copied.is_symlink()
    assert copied.read_bytes() == dcgm_library.build_library(4).read_bytes()


def test_an_image_of_another_distribution_has_it_elsewhere(helm: Helm, image: Path, tmp_path: Path):
    (image / "lib/x86_64-linux-gnu").rename(image / "lib64")
    assert copy_library(render(helm, "sidecar"), image, tmp_path / "copied").returncode == 0
    assert (tmp_path / "copied/libdcgm.so.4").is_file()


def test_an_image_without_libdcgm_says_so(helm: Helm, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    done = copy_library(render(helm, "sidecar"), tmp_path / "empty", tmp_path / "copied")
    assert done.returncode == 1
    assert "this image has no libdcgm: set agent.profiling.image" in done.stderr


def test_the_sidecar_has_the_gpus_and_sys_admin_and_the_agent_nothing_new(helm: Helm):
    before, after = render(helm, "off"), render(helm, "sidecar")
    agent, sidecar, copying = (find_container(after, name) for name in ("agent", "hostengine", "libdcgm"))
    assert sidecar["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in sidecar["env"]
    assert [each["mountPath"] for each in sidecar["volumeMounts"]] == ["/run/dcgm"], "neither /proc nor the kubelet"
    assert copying["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in copying["env"]
    alone = find_container(before, "agent")
    new = [each for each in agent["volumeMounts"] if each not in alone["volumeMounts"]]
    assert [(each["mountPath"], each["readOnly"]) for each in new] == [("/opt/dcgm/lib", True), ("/run/dcgm", True)]
    changed = {key for key in agent if agent[key] != alone.get(key)}
    assert changed == {"args", "env", "volumeMounts"}, "not its security context"
    changed = {key for key in after if after[key] != before.get(key)}
    assert changed == {"containers", "initContainers", "volumes"}
    assert not any("hostPath" in each for each in after["volumes"] if each not in before["volumes"])


def test_agent_and_sidecar_mean_the_same_socket(helm: Helm):
    pod = render(helm, "sidecar")
    command = find_container(pod, "hostengine")["command"]
    path = command[command.index("--domain-socket") + 1]
    settings = read_settings(find_container(pod, "agent")["args"][1:], {})
    assert (settings.dcgm_hostengine.kind, settings.dcgm_hostengine.address) == ("unix", path)


def test_the_hostengine_of_the_gpu_operator_needs_no_container_that_runs(helm: Helm):
    pod = render(helm, "gpu-operator")
    assert [each["name"] for each in pod["containers"]] == ["agent"]
    settings = read_settings(find_container(pod, "agent")["args"][1:], {})
    assert settings.dcgm_hostengine.address == "nvidia-dcgm.gpu-operator:5555"


def test_two_hostengines_are_refused(helm: Helm):
    with pytest.raises(
        HelmError, match=r"agent\.dcgmHostengine: profiling\.hostengine sidecar sets it\. Set one of them"
    ):
        render(helm, "sidecar", dcgmHostengine="auto")


def t4() -> Scenario:
    gpu = a100(0)
    gpu.texts["model"] = "Tesla T4"
    gpu.numbers |= {"mig_capable": 0}
    return Scenario([gpu])


@pytest.fixture
def environ(helm: Helm, image: Path, tmp_path: Path) -> dict[str, str]:
    """What the agent's container has: the copied library, as the chart names its folder, and the GPU of the test."""
    pod = render(helm, "sidecar")
    copy_library(pod, image, tmp_path / "copied")
    variables = {each["name"]: each.get("value", "") for each in find_container(pod, "agent")["env"]}
    assert variables["LD_LIBRARY_PATH"] == "/opt/dcgm/lib"
    t4().write(tmp_path / "nvml")
    base = nvml_library.environment(tmp_path / "nvml")
    folders = f"{tmp_path / 'copied'}:{base['LD_LIBRARY_PATH']}"
    return {**base, "LD_LIBRARY_PATH": folders, "FAKE_DCGM_SCENARIO": str(tmp_path / "dcgm")}


@pytest.mark.slow
def test_a_t4_has_tensor_activity_by_the_copied_library_and_the_socket_of_the_chart(
    helm: Helm, environ: dict[str, str], tmp_path: Path
):
    args = find_container(render(helm, "sidecar"), "agent")["args"]
    flags = [each for each in args if each.startswith("--dcgm-hostengine=")]
    hostengine, (gpu,) = DcgmScenario(), t4().gpus
    hostengine.listen(flags[0].partition("=")[2])
    hostengine.gpu(0, gpu.uuid)
    hostengine.value("gpu 0 1004", 0.25)
    hostengine.write(tmp_path / "dcgm")
    with running(*flags, env=environ) as agent:
        agent.wait_for(lambda agent: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{" in agent.get("/metrics")[1])
        page = agent.get("/metrics")[1]
    (line,) = [each for each in page.splitlines() if each.startswith("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{")]
    assert 'modelName="Tesla T4"' in line
    assert float(line.rpartition(" ")[2]) == 0.25
