"""Jobs of a workload manager: dcgm-exporter's files, read once per cycle and not trusted; the label `hpc_job`."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.hpc_jobs import MAX_FILE_BYTES, MAX_JOB_LENGTH, MAX_JOBS, HpcJobs, parse_jobs
from gpusteward.core.errors import SourceError
from gpusteward.core.node.gpus import Gpu, MigIdentity
from tests.agent.dialects.snapshot_views import claim, gpu, render, view
from tests.agent.dialects.snapshot_views import reading as make_reading
from tests.agent.test_golden_pages import render as render_page
from tests.fakes.machine_examples import exclusive, mig
from tests.fakes.nvml_library import FakeNvml

POWER = "DCGM_FI_DEV_POWER_USAGE"
GPUS = [gpu(0), gpu(1), gpu(3), gpu(3, mig=MigIdentity("GPU-3", "3g.70gb", 0, 0))]


def read(folder: Path, gpus: Iterable[Gpu] = GPUS) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    jobs = HpcJobs(folder)
    return dict(jobs.read(gpus)), jobs.failures


def test_each_line_of_a_gpus_file_is_a_job(tmp_path: Path) -> None:
    files = {"0": "job1-0\n", "1": "job1-1\r\njob2-1\r\n\n", "3.0": "job 3", "NaN": "x", "01": "x"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    jobs = {"GPU-0": ("job1-0",), "GPU-1": ("job1-1", "job2-1"), "MIG-3-0-0": ("job 3",)}
    assert read(tmp_path) == (jobs, [])


def test_a_job_that_is_listed_twice_counts_once_and_blank_lines_are_no_jobs() -> None:
    assert parse_jobs(b"a\n\n  \nb\na\n") == ("a", "b")


def test_without_the_directory_there_are_no_jobs_until_it_exists(tmp_path: Path) -> None:
    jobs = HpcJobs(tmp_path / "slurm")
    assert jobs.read(GPUS) == {}
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "0").write_text("42")
    assert jobs.read(GPUS) == {"GPU-0": ("42",)}


def test_a_path_that_is_no_directory_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot be opened: Not a directory"):
        HpcJobs(tmp_path / "file").read(GPUS)


def test_links_pipes_and_directories_are_not_read_and_cost_only_their_gpu(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root:x:0")
    (tmp_path / "0").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "1")
    (tmp_path / "3").mkdir()
    (tmp_path / "3.0").write_text("fine")
    jobs, failures = read(tmp_path)
    assert jobs == {"MIG-3-0-0": ("fine",)}
    assert [Path(reason.split()[0]).name for reason in failures] == ["0", "1", "3"]
    assert "secret" not in str(failures)


def test_number_length_and_size_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("\n".join(str(number) for number in range(MAX_JOBS + 1)))
    (tmp_path / "1").write_text("j" * (MAX_FILE_BYTES * 4))
    (tmp_path / "3").write_bytes(b"\xff\xfe" + b"x" * 300)
    jobs, failures = read(tmp_path)
    assert jobs["GPU-0"] == tuple(str(number) for number in range(MAX_JOBS))
    assert {len(jobs[uuid][0]) for uuid in ("GPU-1", "GPU-3")} == {MAX_JOB_LENGTH}
    assert ["more than" in reason for reason in failures] == [True, True]


def test_every_sample_has_a_copy_for_each_job_after_the_labels_of_the_pod(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "1").write_text('7001\n70"02\n')
    plain = render_page(machine, tmp_path / "a", "--dialects=dcgm").splitlines()
    page = render_page(machine, tmp_path / "b", "--dialects=dcgm", f"--hpc-job-mapping-dir={tmp_path / 'jobs'}")
    found = [line for line in page.splitlines() if 'hpc_job="' in line]
    bare = [line.replace(',hpc_job="7001"', "") for line in found if '"7001"' in line]
    assert bare == [line for line in plain if line.startswith("DCGM") and 'gpu="1"' in line]
    assert len(found) == 2 * len(bare)
    assert ',container="main",hpc_job="70\\"02",namespace="research",pod="bert-worker-0"}' in page
    assert 'gpusteward_collector_success{node="node-a",collector="hpc_jobs"} 1' in page


def test_a_mig_instance_has_the_jobs_of_its_own_file(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    machine = mig()
    fake_nvml.load(machine.scenario)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "0.7").write_text("7001\n")
    page = render_page(machine, tmp_path, "--dialects=dcgm", f"--hpc-job-mapping-dir={tmp_path / 'jobs'}")
    found = [line for line in page.splitlines() if "hpc_job" in line and line.startswith("DCGM")]
    assert found
    assert all('GPU_I_ID="7"' in line for line in found)


def test_a_pod_label_of_that_name_gets_another_one_only_where_jobs_are_exported() -> None:
    seen = view([make_reading(0)], [claim("a", labels={"hpc_job": "mine"})])
    for jobs, name in ((True, "pod_label_hpc_job"), (False, "hpc_job")):
        labels, _ = render(seen, DcgmOptions(pod_labels=True, hpc_jobs=jobs)).only(POWER)
        assert labels[name] == "mine"
