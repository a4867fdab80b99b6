"""The load generator of deploy/examples: the program with a stand-in for the GPU, the manifests on the API server."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster, path_of
from tests.yaml_texts import read_all_yaml

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
PROGRAM = EXAMPLES / "gpu_load.py"
TORCH = '''
"""A stand-in: four products take 4 ms."""
import time
from types import SimpleNamespace

float16, float32, uint8 = "float16", "float32", "uint8"
backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True)))
cuda = SimpleNamespace(device_count=lambda: COUNT, synchronize=lambda device: None)

class Tensor:
    def __init__(self, device):
        self.device = device

    def to(self, kind):
        assert kind == KIND, kind
        return self

def randn(rows, columns, *, device):
    return Tensor(device)

def zeros(size, *, dtype, device):
    assert size == HELD, size
    return Tensor(device)

def matmul(one, other):
    time.sleep(0.001)
'''


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_load", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Device:
    """A GPU and a clock: a piece of work takes its time, sleeping too."""

    def __init__(self, *, piece: float, slow_from: float = float("inf")) -> None:
        self.now, self.busy, self._piece, self._slow_from = 100.0, 0.0, piece, slow_from

    def work(self) -> None:
        seconds = self._piece * (5 if self.now >= self._slow_from else 1)
        self.busy += seconds
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("share", [0.01, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("piece", [0.005, 0.02, 0.5])
def test_the_gpu_is_busy_for_the_share_of_the_time(program: ModuleType, share: float, piece: float):
    device = Device(piece=piece)
    found = program.keep_busy(device.work, share=share, seconds=120, clock=lambda: device.now, sleep=device.sleep)
    assert device.busy == pytest.approx(share * 120, abs=piece + 0.01)
    assert found == pytest.approx(device.busy / (device.now - 100))
    assert 220 <= device.now <= 220 + piece


def test_the_share_holds_when_pieces_of_work_become_slower(program: ModuleType):
    """As with a clock that is throttled, or another process on the GPU."""
    device = Device(piece=0.02, slow_from=160)
    program.keep_busy(device.work, share=0.6, seconds=120, clock=lambda: device.now, sleep=device.sleep)
    assert device.busy == pytest.approx(72, abs=0.1)


def test_work_and_sleep_alternate_within_a_fraction_of_a_second(program: ModuleType):
    """Utilization that a driver averages over a second would otherwise be 0 or 100."""
    device, moments = Device(piece=0.02), []

    def sleep(seconds: float) -> None:
        moments.append(seconds)
        device.sleep(seconds)

    program.keep_busy(device.work, share=0.5, seconds=10, clock=lambda: device.now, sleep=sleep)
    assert max(moments) <= 0.05


def test_it_reports_while_it_runs_and_at_the_end(program: ModuleType):
    device, reports = Device(piece=0.02), []
    program.keep_busy(
        device.work,
        share=0.5,
        seconds=70,
        clock=lambda: device.now,
        sleep=device.sleep,
        report=lambda busy, elapsed: reports.append(round(elapsed / 10)),
    )
    assert reports == [3, 6, 7]


def run(folder: Path, *flags: str, torch: str = "") -> subprocess.CompletedProcess[str]:
    if torch:
        (folder / "torch.py").write_text(torch)
    command = [sys.executable, str(PROGRAM), *flags]
    env = {"PYTHONPATH": str(folder), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def fake_torch(*, count: int = 1, kind: str = "float16", held: int = 0) -> str:
    return f"COUNT, KIND, HELD = {count}, {kind!r}, {held}\n{TORCH}"


def test_the_whole_program_with_a_stand_in_for_pytorch(tmp_path: Path):
    done = run(tmp_path, "--share", "50", "--minutes", "0.02", torch=fake_torch(count=2))
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert first.startswith("2 GPUs, ")
    share, seconds = (float(last.split()[number]) for number in (2, 5))
    assert 45 <= share <= 55
    assert seconds == pytest.approx(1.2, abs=0.3)


def test_memory_is_held_and_single_precision_is_asked_for(tmp_path: Path):
    torch = fake_torch(kind="float32", held=3 << 29)
    done = run(tmp_path, "--precision", "single", "--memory-gib", "1.5", "--minutes", "0.01", torch=torch)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 x 1.5 GiB held" in done.stdout


def test_without_a_gpu_it_says_what_to_check(tmp_path: Path):
    done = run(tmp_path, torch=fake_torch(count=0))
    assert done.returncode == 1
    assert done.stderr.startswith("no GPU is visible: does the pod request one (nvidia.com/gpu)")


def test_without_pytorch_it_says_which_image_to_use(tmp_path: Path):
    done = run(tmp_path, torch="raise ImportError")
    assert (done.returncode, done.stderr.partition(":")[0]) == (1, "PyTorch is not installed")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--share", "0"), "0 is not a number from 1 to 100"),
        (("--share", "101"), "101 is not a number from 1 to 100"),
        (("--minutes", "soon"), "--minutes: invalid"),
        (("--precision", "double"), "invalid choice: 'double'"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, flags: tuple[str, ...], problem: str):
    done = run(tmp_path, *flags)
    assert done.returncode == 2
    assert problem in done.stderr


def read_manifests(name: str) -> list[dict[str, Any]]:
    return read_all_yaml((EXAMPLES / name).read_text())


def test_the_program_in_the_manifest_is_the_file():
    _, config = read_manifests("load.yaml")
    assert config["data"]["gpu_load.py"] == PROGRAM.read_text()


@pytest.mark.parametrize("name", ["load.yaml", "load-dcgmproftester.yaml"])
def test_the_api_server_accepts_the_manifest_with_every_field(kubernetes: Cluster, name: str):
    namespace = kubernetes.add_namespace("load")
    for item in read_manifests(name):
        item["metadata"]["namespace"] = namespace
        kubernetes.request("POST", f"{path_of(item).rpartition('/')[0]}?fieldValidation=Strict&dryRun=All", item)


def test_the_load_runs_where_pods_must_be_restricted(kubernetes: Cluster):
    namespace = kubernetes.add_namespace("load")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    job, _ = read_manifests("load.yaml")
    about = {"name": "load", "namespace": namespace}
    kubernetes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": job["spec"]["template"]["spec"]})


def test_the_share_of_dcgmproftester_is_a_part_of_every_minute(tmp_path: Path):
    (pod,) = read_manifests("load-dcgmproftester.yaml")
    container = pod["spec"]["containers"][0]
    for name in ("proftester", "sleep"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\n')
        (tmp_path / name).chmod(0o755)
    env = {each["name"]: each["value"] for each in container["env"]}
    env |= {"PROGRAM": "proftester", "MINUTES": "2", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([*container["command"], *container["args"]], env=env, timeout=30, check=False)
    assert done.returncode == 0
    minute = ["proftester --no-dcgm-validation -t 1004 -d 48", "sleep 12"]
    assert (tmp_path / "calls").read_text().splitlines() == minute * 2
