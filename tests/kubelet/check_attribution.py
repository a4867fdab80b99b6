"""Holders and processes on a real kubelet: what the agent's page says against what the kubelet really assigned.

The truth is in the containers: the device plugin writes the assigned ids into their environment, and the fake driver
has their processes by real process id.
"""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_agent_process import RunningAgent, is_ready, running
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.nvml_library import environment
from tests.kubelet.node import CGROUP, IMAGE, NAME, Programs, RealNode
from tests.kubernetes.agent_node import COMMAND, read_rules
from tests.kubernetes.cluster import Account, ApiServerProcess, Cluster, Json, wait_for

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
RESULT = Path(__file__).parents[2] / "bench/results/kubelet.md"
NO_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
"""As the DaemonSet: user 0 without capabilities."""

Holder = tuple[str, str, str, str]  # GPU uuid, pod, container, share
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Row:
    """One line of the result."""

    case: str
    expected: str
    seen: str


@dataclass
class Site:
    """The node, its pods, the fake driver and the agent."""

    node: RealNode
    api_server: ApiServerProcess
    namespace: str
    scenario: Path
    signals: Path
    agent: RunningAgent
    rows: list[Row]

    @property
    def cluster(self) -> Cluster:
        return self.node.cluster

    def check(self, case: str, expected: object, seen: object) -> None:
        """Note a row of the result, then compare."""
        self.rows.append(Row(case, _show(expected), _show(seen)))
        assert seen == expected, case

    def find_containers(self) -> dict[tuple[str, str], "RunningContainer"]:
        """The running containers of all pods by pod and container name."""
        found = {}
        for pod in self.cluster.list_pods(self.namespace):
            for kind in ("containerStatuses", "initContainerStatuses"):
                for status in pod["status"].get(kind, ()):
                    if "running" in status["state"]:
                        pid = find_pid(status["containerID"].rpartition("/")[2])
                        found[pod["metadata"]["name"], status["name"]] = RunningContainer(pid, read_devices(pid))
        return found

    def write_scenario(self, places: dict[int, list[int]]) -> None:
        """Put processes on GPUs: index -> pids."""
        machine = nvml.a100x8()
        for index, gpu in enumerate(machine.gpus):
            gpu.rest()
            for pid in places.get(index, ()):
                gpu.compute(pid, nvml.GIB)
        machine.write(self.scenario)

    def read_rows(self, metric: str) -> list[dict[str, str]]:
        return parse_rows(self.agent.get("/metrics")[1], metric)

    def read_holders(self) -> set[Holder]:
        return holders_on(self.agent.get("/metrics")[1])

    def wait_for_page(self, condition: Callable[[str], bool], seconds: float = 30) -> None:
        self.agent.wait_for(lambda agent: condition(agent.get("/metrics")[1]), seconds)


@dataclass(frozen=True)
class RunningContainer:
    pid: int
    devices: tuple[str, ...]


def parse_rows(page: str, metric: str) -> list[dict[str, str]]:
    lines = [line for line in page.splitlines() if line.startswith(f"{metric}{{")]
    return [dict(_LABEL.findall(line)) for line in lines]


def holders_on(page: str) -> set[Holder]:
    rows = parse_rows(page, "gpusteward_allocation_info")
    return {(row["uuid"], row["pod"], row["container"], row["share"]) for row in rows}


def flagged_on(page: str) -> set[str]:
    return {row["pod"] for row in parse_rows(page, "gpusteward_process_outside_allocation")}


def find_pid(container_id: str) -> int:
    """The process of a running container. It is the runtime's for a moment after the container has started."""
    found: list[int] = []
    wait_for(lambda: bool(found.extend(find_pids(container_id)) or found), 10)
    return found[0]


def find_pids(container_id: str) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if container_id in (folder / "cgroup").read_text() and (folder / "comm").read_text() == "gpunode\n":
                yield int(folder.name)


def read_devices(pid: int) -> tuple[str, ...]:
    """The device ids that the kubelet assigned to the container of this process."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    ids = next((word.partition("=")[2] for word in words if word.startswith("NVIDIA_VISIBLE_DEVICES=")), "")
    return tuple(sorted(filter(None, ids.split(","))))


def container(name: str, devices: int = 0, *, resource: str = GPU, command: tuple[str, ...] = ("sleep",)) -> Json:
    limits = {"resources": {"limits": {resource: str(devices)}}} if devices else {}
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "args": list(command), **limits}


def pod(name: str, namespace: str, *containers: Json, **spec: Any) -> Json:
    common = {"nodeName": NAME, "hostNetwork": True, "automountServiceAccountToken": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**common, "terminationGracePeriodSeconds": 0, "containers": list(containers), **spec},
    }


def make_pods(namespace: str, signals: Path) -> list[Json]:
    folder = {"name": "signals", "hostPath": {"path": str(signals)}}
    prepare = container("prepare", 2, command=("wait", "/signals/go"))
    prepare["volumeMounts"] = [{"name": "signals", "mountPath": "/signals"}]
    return [
        pod("exclusive", namespace, container("main", 1)),
        pod("slice-a", namespace, container("main", 1, resource=SHARED)),
        pod("slice-b", namespace, container("main", 1, resource=SHARED)),
        pod("two-containers", namespace, container("first", 1), container("second", 1)),
        pod("init", namespace, container("main", 1), initContainers=[prepare], volumes=[folder]),
        pod("foreign", namespace, container("main")),
    ]


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest, kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("node")
    signals = tmp_path_factory.mktemp("signals")
    uuids = [gpu.uuid for gpu in nvml.a100x8().gpus]
    devices = {GPU: uuids[:6], SHARED: [f"{uuids[6]}::{number}" for number in range(4)]}
    programs = Programs.from_environment()
    with kubernetes.another_api_server() as server, RealNode(server.cluster, programs, folder).run(devices) as node:
        namespace = kubernetes.add_namespace("ml")
        account = kubernetes.add_account(namespace, read_rules())
        for item in make_pods(namespace, signals):
            kubernetes.request("POST", f"/api/v1/namespaces/{namespace}/pods", item)
        kubernetes.wait_for_pods(namespace, 5)
        wait_for(lambda: is_initializing(kubernetes, namespace))
        scenario = folder / "scenario"
        nvml.a100x8().write(scenario)
        with running_agent(kubernetes, account, scenario) as agent:
            rows: list[Row] = []
            one = Site(node, server, namespace, scenario, signals, agent, rows)
            place_processes(one, uuids)
            yield one
            if not request.session.testsfailed:
                write_result(programs, rows)


@contextmanager
def running_agent(cluster: Cluster, account: Account, scenario: Path) -> Iterator[RunningAgent]:
    flags = ("--kubernetes=true", f"--kubernetes-api={cluster.url}", f"--node-name={NAME}", "--interval=0.5")
    command = (*NO_RIGHTS, *COMMAND, str(account.folder))
    with running(*flags, env=environment(scenario), command=command) as agent:
        agent.wait_for(is_ready)
        yield agent


def is_initializing(cluster: Cluster, namespace: str) -> bool:
    (item,) = [each for each in cluster.list_pods(namespace) if each["metadata"]["name"] == "init"]
    return any("running" in status["state"] for status in item["status"].get("initContainerStatuses", ()))


def place_processes(site: Site, uuids: list[str]) -> None:
    """Every container uses its devices; the foreign one that of the exclusive pod."""
    found, places = site.find_containers(), {}
    for running_one in found.values():
        for device in running_one.devices:
            places.setdefault(uuids.index(device.partition("::")[0]), []).append(running_one.pid)
    exclusive = uuids.index(found["exclusive", "main"].devices[0])
    places[exclusive].append(found["foreign", "main"].pid)
    site.write_scenario(places)
    site.wait_for_page(lambda page: "foreign" in flagged_on(page))


def write_result(programs: Programs, rows: list[Row]) -> None:
    versions = [f"{name} {programs.read_version(name)}" for name in ("kubelet", "containerd", "runc")]
    lines = [
        "# Attribution on a real kubelet",
        "",
        f"`make test-kubelet` with {', '.join(versions)},",
        "a device plugin, the fake driver with the real processes of the containers, and the agent as user 0 without",
        "capabilities and with the RBAC rules of the manifest. Expected is what the device plugin assigned (the",
        "environment of the containers), seen is the agent's page.",
        "",
        "| case | expected | seen |",
        "|---|---|---|",
        *(f"| {row.case} | {row.expected} | {row.seen} |" for row in rows),
    ]
    RESULT.write_text("\n".join(lines) + "\n")


def _show(value: object) -> str:
    return ", ".join(sorted(map(str, value))) or "none" if isinstance(value, (set, list, tuple)) else str(value)


def count_holders(holders: set[Holder]) -> list[str]:
    """Holders without uuids, which differ from run to run."""
    return sorted(f"{pod}/{name} {share}" for _, pod, name, share in holders)


def expect_holders(found: dict[tuple[str, str], RunningContainer], *pods: str) -> set[Holder]:
    return {
        (device.partition("::")[0], pod, name, "time-sliced" if "::" in device else "exclusive")
        for (pod, name), one in found.items()
        if pod in pods
        for device in one.devices
    }


def check_holders(site: Site, case: str, *pods: str) -> None:
    expected = expect_holders(site.find_containers(), *pods)
    seen = {holder for holder in site.read_holders() if holder[1] in pods}
    site.check(case, count_holders(expected), count_holders(seen))
    assert seen == expected  # with the uuids


def test_an_exclusive_gpu(site: Site) -> None:
    check_holders(site, "exclusive", "exclusive")


def test_a_time_sliced_gpu(site: Site) -> None:
    check_holders(site, "time-sliced, two pods", "slice-a", "slice-b")


def test_two_containers_of_a_pod(site: Site) -> None:
    check_holders(site, "two containers", "two-containers")


def test_processes_belong_to_their_containers(site: Site) -> None:
    expected = {(str(one.pid), pod, name) for (pod, name), one in site.find_containers().items() if one.devices}
    rows = site.read_rows("gpusteward_process_memory_bytes")
    seen = {(row["pid"], row["pod"], row["container"]) for row in rows if row["pod"] != "foreign"}
    site.check(
        "processes by container", *(sorted(f"{pod}/{name}" for _, pod, name in each) for each in (expected, seen))
    )
    assert seen == expected


def test_only_the_foreign_process_is_flagged(site: Site) -> None:
    site.check("foreign process on an exclusive GPU: flagged", {"foreign"}, flagged_on(site.agent.get("/metrics")[1]))


def test_while_the_pods_are_unknown_a_foreign_process_leaves_the_holder_unnamed(site: Site) -> None:
    """An agent that may not list pods: the cgroups are all it has besides the kubelet."""
    account = site.cluster.add_account(site.namespace, [])
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in site.cluster.list_pods(site.namespace)}
    with running_agent(site.cluster, account, site.scenario) as agent:
        agent.wait_for(lambda it: uids["two-containers"] in it.get("/metrics")[1])
        page = agent.get("/metrics")[1]
    processes = parse_rows(page, "gpusteward_process_memory_bytes")
    contested = [
        row.get("pod", "unnamed") for row in processes if row.get("pod_uid") in (uids["exclusive"], uids["foreign"])
    ]
    site.check("pods unknown: names of the holder and of the foreign process on its GPU", ["unnamed"] * 2, contested)
    held = parse_rows(page, "gpusteward_allocation_info")
    known = {row.get("pod_uid") == uids["two-containers"] for row in held if row["pod"] == "two-containers"}
    site.check("pods unknown: uid of an undisputed holder known", {True}, known)


def test_a_nested_cgroup_does_not_bill_the_pod_it_is_named_after(site: Site) -> None:
    """A process of the exclusive pod moves to a cgroup below its own that is named after the pod slice-a."""
    found, scenario = site.find_containers(), site.scenario.read_text()
    (victim,) = [each for each in site.cluster.list_pods(site.namespace) if each["metadata"]["name"] == "slice-a"]
    cid = victim["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    own = found["exclusive", "main"]
    with in_nested_cgroup(own.pid, f"kubepods/pod{victim['metadata']['uid']}/{cid}") as pid:
        site.scenario.write_text(scenario.replace(f"compute {own.pid} ", f"compute {pid} "))
        site.wait_for_page(lambda page: f'pid="{pid}"' in page)
        page = site.agent.get("/metrics")[1]
    seen = [row["pod"] for row in parse_rows(page, "gpusteward_process_memory_bytes") if row["pid"] == str(pid)]
    site.check("cgroup of exclusive that is named after slice-a: pod of its process", ["exclusive"], seen)
    site.scenario.write_text(scenario)


@contextmanager
def in_nested_cgroup(container_pid: int, name: str) -> Iterator[int]:
    """A process in a new cgroup of this name below that of a container. Cpusets are left out: they need settings."""
    process = subprocess.Popen(["sleep", "600"])
    folders = []
    for line in Path(f"/proc/{container_pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        root = Path("/sys/fs/cgroup") / controllers.removeprefix("name=")
        if CGROUP in path and controllers != "cpuset" and (root / "cgroup.procs").exists():
            folders.append(root / path.lstrip("/") / name)
            folders[-1].mkdir(parents=True)
            (folders[-1] / "cgroup.procs").write_text(str(process.pid))
    try:
        assert folders, "no cgroup could be created below that of the container"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        for folder in folders:
            for each in (folder, *folder.parents[: name.count("/")]):
                each.rmdir()


def test_an_init_container_holds_its_gpus(site: Site) -> None:
    """It has two devices, the main container one of them."""
    found = site.find_containers()
    gpus = {holder[0] for holder in site.read_holders() if holder[1] == "init"}
    site.check("init container with 2 GPUs, main with 1: GPUs held while it runs", 2, len(gpus))
    assert gpus == set(found["init", "prepare"].devices)


def test_the_gpus_of_an_ended_init_container_stay_held(site: Site) -> None:
    before = {holder[0] for holder in site.read_holders() if holder[1] == "init"}
    (site.signals / "go").touch()
    site.cluster.wait_for_pods(site.namespace, 6)
    uuids = [gpu.uuid for gpu in nvml.a100x8().gpus]
    place_processes(site, uuids)
    after = {holder[0] for holder in site.read_holders() if holder[1] == "init"}
    site.check("the same after the init container has ended", len(before), len(after))
    assert after == before


def collect_pages(site: Site, pages: list[str], condition: Callable[[str], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pages.append(site.agent.get("/metrics")[1])
        if condition(pages[-1]):
            return True
        time.sleep(0.1)
    return False


def is_kept(page: str) -> bool:
    return "gpusteward_allocations_kept{" in page


def check_restart(site: Site, case: str, before: set[Holder], pages: list[str]) -> None:
    lost = {f"{pod}/{name}" for page in pages for _, pod, name, _ in before - holders_on(page)}
    flagged = set().union(*map(flagged_on, pages))
    site.check(f"{case}: holders missing on any page", set(), lost)
    site.check(f"{case}: flagged on any page", {"foreign"}, flagged)
    site.check(f"{case}: holders afterwards", count_holders(before), count_holders(site.read_holders()))


def test_a_restarted_kubelet_costs_no_holder(site: Site) -> None:
    before, pages = site.read_holders(), list[str]()
    site.node.stop_kubelet()
    collect_pages(site, pages, lambda _page: False, 1)
    site.node.start_kubelet()
    collect_pages(site, pages, lambda _page: False, 10)
    assert collect_pages(site, pages, lambda page: not is_kept(page), 60), "the kubelet did not list its pods again"
    check_restart(site, "kubelet restarted", before, pages)


def test_a_restarted_kubelet_without_its_api_server_costs_no_holder(site: Site) -> None:
    before, pages = site.read_holders(), list[str]()
    site.api_server.stop()
    site.node.stop_kubelet()
    site.node.start_kubelet()
    assert collect_pages(site, pages, is_kept, 60), "the kubelet never responded without its pods"
    collect_pages(site, pages, lambda _page: False, 3)
    site.api_server.start()
    assert collect_pages(site, pages, lambda page: not is_kept(page), 120), "the kubelet did not list its pods again"
    collect_pages(site, pages, lambda _page: False, 2)
    check_restart(site, "kubelet restarted, API server away", before, pages)


def test_a_deleted_pod_holds_nothing(site: Site) -> None:
    (item,) = [each for each in site.cluster.list_pods(site.namespace) if each["metadata"]["name"] == "two-containers"]
    site.cluster.delete({**item, "apiVersion": "v1", "kind": "Pod"})
    site.wait_for_page(lambda page: not any(holder[1] == "two-containers" for holder in holders_on(page)))
    site.check("deleted pod: holders", set(), {h for h in site.read_holders() if h[1] == "two-containers"})
