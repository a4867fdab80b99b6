"""cgroup paths of every runtime; no input makes the parser raise."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpusteward.agent.processes import CgroupIdentity, parse_cgroup

EXCERPT = Path(__file__).parent / "data" / "cgroup_cases.json"
COLLECTION = Path(__file__).parents[4] / "shared" / "data" / "cgroup" / "cases.json"
"""The whole collection lies beside the repository where the project is built; a clone has a part of it, and more."""

UID = "2c48913c-b29f-11e7-9350-020968147796"
UID_IN_SLICE = UID.replace("-", "_")
OTHER_UID = "15aa6e53-b09a-40c7-8558-c6c31e36c88a"
A, B, C = "a" * 64, "b" * 64, "c" * 64


def load_cases() -> list[dict[str, object]]:
    cases = json.loads(EXCERPT.read_text())
    return cases + (json.loads(COLLECTION.read_text()) if COLLECTION.exists() else [])


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case["name"])
def test_every_collected_cgroup_file_is_parsed(case):
    identity = parse_cgroup(case["text"])
    strict = {"pod_uid", "container_id", "qos"} - set(case["loose"])
    assert {name: getattr(identity, name) for name in strict} == {name: case[name] or "" for name in strict}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # Runtimes: the prefix does not matter, the form of the id does.
        (f"/system.slice/nerdctl-{A}.scope", CgroupIdentity("", A, "")),
        (f"/docker.slice/docker-{A}.scope", CgroupIdentity("", A, "")),
        (f"/libpod_parent/libpod-{A}", CgroupIdentity("", A, "")),
        (f"/machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope/container", CgroupIdentity("", A, "")),
        (f"/actions_job/{A}", CgroupIdentity("", A, "")),
        (f"/../crio-{A}.scope", CgroupIdentity("", A, "")),
        ("/ecs/55091c13-b8cf-4801-b527-f4601742204d/34dc0b5e626f2c5c4c5170e34b10e765-1234567890",
         CgroupIdentity("", "34dc0b5e626f2c5c4c5170e34b10e765-1234567890", "")),
        ("/garden/6f265890-5165-7fab-6b52-18d1", CgroupIdentity("", "6f265890-5165-7fab-6b52-18d1", "")),
        (f"/../{'8' * 32}-1053176469", CgroupIdentity("", f"{'8' * 32}-1053176469", "")),
        (f"/mesos/{UID}/mesos/{OTHER_UID}", CgroupIdentity("", OTHER_UID, "")),
        (f"/docker/{A}/garden/{UID}", CgroupIdentity("", A, "")),
        (f"/system.slice:docker:{A}", CgroupIdentity("", A, "")),
        (f"/libpod_parent/libpod-{A}/ctr", CgroupIdentity("", A, "")),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope", CgroupIdentity("", A, "")),
        # Parent cgroups of pods.
        (f"/kubepods/kubepods/besteffort/pod{UID}/{A}", CgroupIdentity(UID, A, "besteffort")),
        (f"/podruntime/docker/kubepods/burstable/pod{UID}/{A}", CgroupIdentity(UID, A, "burstable")),
        (f"/user.slice/user-1000.slice/user@1000.service/k3s-rootless.service/kubepods/pod{UID}/{A}",
         CgroupIdentity(UID, A, "guaranteed")),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID_IN_SLICE}.slice/cri-containerd-{A}.scope",
         CgroupIdentity(UID, A, "guaranteed")),
        (f"/mesos/3b1cf944-1d97-40a6-ac73-b156ac2f2bfe/kubepods/besteffort/pod{UID}/{A}",
         CgroupIdentity(UID, A, "besteffort")),
        (f"/kubepods-burstable-pod{'d' * 32}.slice:cri-containerd:{A}", CgroupIdentity("d" * 32, A, "burstable")),
        (f"/kubepods.slice/kubepods-pod{UID_IN_SLICE}.slice", CgroupIdentity(UID, "", "guaranteed")),
        (f"/kubepods.slice/kubepods-burstable-pod{UID.replace('-', chr(92) + 'x2d')}.slice/crio-{A}.scope",
         CgroupIdentity(UID, A, "burstable")),
        (f"/../../pod{UID}/{A}", CgroupIdentity(UID, A, "")),
        (f"/lxc/101/ns/kubepods/besteffort/pod{UID}/{A}", CgroupIdentity(UID, A, "besteffort")),
        (f"/kubepods/burstable/pod{UID}/{OTHER_UID}", CgroupIdentity(UID, OTHER_UID, "burstable")),
        (f"/kubepods/pod{UID}/{A}/system.slice/slurmstepd.scope/job_7/step_0", CgroupIdentity(UID, A, "guaranteed")),
        # One inside the other: the innermost pod, and the container of it that Kubernetes knows.
        (f"/docker/{A}/docker/{B}", CgroupIdentity("", B, "", (CgroupIdentity("", A),))),
        (f"/docker/{A}/kubelet/kubepods/pod{UID}/{B}", CgroupIdentity(UID, B, "guaranteed", (CgroupIdentity("", A),))),
        (f"/kubepods/pod{'e' * 32}/{A}/docker/{B}/kubelet/kubepods/burstable/pod{UID}/{C}",
         CgroupIdentity(UID, C, "burstable", (CgroupIdentity("e" * 32, A, "guaranteed"),))),
        (f"/kubepods/pod{OTHER_UID}/kubepods/burstable/pod{UID}/{C}",
         CgroupIdentity(UID, C, "burstable", (CgroupIdentity(OTHER_UID, "", "guaranteed"),))),
        (f"/kubepods/burstable/pod{UID}/{A}/docker/{B}", CgroupIdentity(UID, A, "burstable")),
        (f"/kubepods/burstable/pod{UID}/{A}/libpod_parent/libpod-{B}/conmon", CgroupIdentity(UID, A, "burstable")),
        # Without a pod, without a container, or without both.
        (f"/kubepods/besteffort/pod123/docker-{A}.scope", CgroupIdentity("", A, "")),
        (f"/kubepods/pod{UID}/crio-{A}.mount", CgroupIdentity(UID, "", "guaranteed")),
        (f"/x.slice:crio-conmon:{A}", CgroupIdentity()),
        (f"/kata_overhead/{A}", CgroupIdentity()),
        (f"/kata_overhead/kubepods/burstable/pod{UID}/{A}", CgroupIdentity(UID, "", "burstable")),
        (f"/kata.slice/kata-overhead.slice/runtime-rs-{A}.scope", CgroupIdentity()),
        (f"/kata_sandboxed_pod/{A}", CgroupIdentity()),
        (f"/libpod_parent/{A}/conmon", CgroupIdentity()),
        (f"/system.slice/{A}.service", CgroupIdentity()),
        (f"/{UID}", CgroupIdentity()),
        (f"/lxc/{UID}", CgroupIdentity()),
        (f"/nomad.slice/share.slice/{UID}.web.scope", CgroupIdentity()),
        ("/system.slice/web.service/runtime", CgroupIdentity()),
        (f"/user.slice/user@1000.service/libpod-{A}{A}", CgroupIdentity()),
        (f"/docker/{A.upper()}", CgroupIdentity()),
        ("/system.slice/slurmstepd.scope/job_1009249/step_0/user/task_0", CgroupIdentity()),
        ("/slurm/uid_1000/job_1009248", CgroupIdentity()),
        ("/machine.slice/systemd-nspawn@box.service/payload", CgroupIdentity()),
        ("/lxc/101/ns/system.slice/cron.service", CgroupIdentity()),
        ("/libpod_parent/conmon", CgroupIdentity()),
        ("/default/task", CgroupIdentity()),
    ],
)  # fmt: skip
def test_a_path_is_read_name_by_name(path, expected):
    assert parse_cgroup(f"0::{path}\n") == expected


def test_a_removed_cgroup_is_parsed():
    assert parse_cgroup(f"0::/kubepods/pod{UID}/{A} (deleted)\n") == CgroupIdentity(UID, A, "guaranteed")


def test_the_most_specific_line_wins():
    text = f"3:cpu:/\n2:pids:/docker/{A}\n1:name=systemd:/kubepods/pod{UID}/{B}\n0::/system.slice/containerd.service\n"
    assert parse_cgroup(text).container_id == B


@pytest.mark.parametrize("line", [f"13:/docker/{A}", f"a:cpu:/docker/{A}", f":cpu:/docker/{A}", f"/docker/{A}", A])
def test_an_invalid_line_is_ignored(line):
    assert parse_cgroup(line) == CgroupIdentity()


def test_blanks_and_carriage_returns_around_a_line_do_not_matter():
    assert parse_cgroup(f"\r\n   13:name=systemd:/docker/{A}   \r\n").container_id == A


def test_containers_are_distinguished_from_the_host():
    assert parse_cgroup(f"0::/docker/{A}").is_container
    assert parse_cgroup(f"0::/kubepods/pod{UID}/crio-conmon-{A}").is_container
    assert not parse_cgroup("0::/system.slice/sshd.service").is_container


PIECES = st.sampled_from(
    ["0::", "1:cpu:", "/", ":", "-", "..", "pod", "kubepods", "burstable", ".slice", ".scope", "crio", "conmon",
     "ecs", "garden", "lxc", "kata_overhead", " ", "\\x2d", "\\x", " (deleted)", "\n", "\0",
     UID, UID_IN_SLICE, A, "9" * 32, "\udc80", "\u2028"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=400) | st.lists(PIECES, max_size=30).map("".join))
@example(b"\xff\xfe0::/pod")
def test_no_bytes_make_the_parser_raise(text):
    identity = parse_cgroup(text)
    assert identity.qos in ("", "besteffort", "burstable", "guaranteed")
    assert identity.is_container == bool(identity.pod_uid or identity.container_id)
