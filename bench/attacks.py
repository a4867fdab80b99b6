"""`python -m bench.attacks`: the attacks of tests/attacks on a running analyzer and agent, one after the other.

Writes bench/results/attacks.md: time and memory of each, and the slowest /livez meanwhile. Exits with 0 whether the
limits hold or not.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.measure import describe_run, name_command, print_progress, read_cpu_seconds
from bench.report import Bar, at_most, publish, render_bars, render_head, render_table
from gpusteward.analyzer.api.http.concurrency_limits import EVENTS_PATH, SHARES
from gpusteward.analyzer.api.http.identities import MOST_SESSIONS
from tests.attacks.test_foreign_pages import FOREIGN
from tests.attacks.test_heads import ESCAPES, LANGUAGES
from tests.attacks.test_large_pods import PODS, serving_large_pods
from tests.attacks.test_nested_json import NESTED
from tests.attacks.test_numbers import NUMBERS, PATHS, send_number
from tests.attacks.test_one_viewer import listening, sign_in
from tests.attacks.test_parsers import NESTED_GRANT, SIZE
from tests.attacks.test_slow_readers import slow_readers
from tests.attacks.test_yaml import BOMBS, LONG, ODD
from tests.attacks.victims import Victim, running_agent, running_analyzer, running_guarded_analyzer, status_of
from tests.fakes.apiserver import FakeApiServer, pod
from tests.fakes.kubelet import FakeKubelet

MIB = 1 << 20
LIVEZ_SECONDS, PEAK_MIB = 1.0, 512
PROBE_EVERY_SECONDS = 0.05
TIMES = 20  # requests that a client sends one after the other
JSON_TYPE = "Content-Type: application/json"
ABOUT = """\
The analyzer runs without credentials, as on a laptop, but for the attacks of a viewer; its engine does not answer. The
agent has 8 GPUs of the fake driver. Each attack begins when the one before has ended. A second client asks for /livez
every 50 ms meanwhile; peak is the highest RSS during the attack, unsent is what the kernel had of responses that no
client had taken, which is memory of the container too. On a machine that others use, times are longer.
"""
LIST_PODS = """
import resource, sys, time
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.kubernetes.writes import ApiWriter
assert len(Cluster(ApiWriter(sys.argv[1])).list_pending()) == int(sys.argv[2])
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
Send = Callable[[Victim], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attack cost; without a server nobody asks for /livez."""

    program: str
    name: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    unsent_bytes: int = 0
    livez_seconds: float | None = None


def repeat(send: Send) -> Send:
    return lambda victim: [send(victim) for _ in range(TIMES)]


def get(path: str, *headers: str) -> Send:
    return lambda victim: victim.get(path, *headers)


def replay(texts: Mapping[str, str]) -> Send:
    bodies = [json.dumps({"policy": text}).encode() for text in texts.values()]
    return lambda victim: [victim.post("/api/v1/replay", body, JSON_TYPE) for body in bodies]


def read_slowly(path: str, count: int, *, requests: int) -> Send:
    def send(victim: Victim) -> None:
        with slow_readers(victim, path, count, requests=requests):
            time.sleep(5)

    return send


def listen(victim: Victim) -> None:
    with listening(victim, "viewer", SHARES[EVENTS_PATH].of_all):
        time.sleep(2)


HEADS: Mapping[str, Send] = {
    f"Accept-Language of {len(LANGUAGES) // 1000} kB, {TIMES} times": repeat(get("/nowhere", LANGUAGES)),
    "Accept-Language of 62 kB": get("/nowhere", "Accept-Language: " + "aa," * 20_666),
    f"quoted Cookie of {len(ESCAPES) // 1000} kB, {TIMES} times": repeat(get("/livez", ESCAPES)),
    "quoted Cookie of 60 kB": get("/livez", 'Cookie: a="' + "\\" * 60_000 + '"'),
    f"head of 250 kB, {TIMES} times": repeat(get("/livez", f"X-A: {'x' * 250_000}")),
    "1,000 headers": get("/livez", *(f"X-{number}: 1" for number in range(1000))),
    "Content-Length of 6,000 zeros": get("/livez", f"Content-Length: {'0' * 6000}"),
    "credentials of 8 KiB": get("/metrics", f"Authorization: Bearer {'a' * 8200}"),
}
ANALYZER: Mapping[str, Send] = HEADS | {
    f"YAML: {len(BOMBS)} bombs of aliases": replay(BOMBS),
    f"YAML: {len(ODD)} values that PyYAML cannot make": replay(ODD),
    f"YAML: {len(LONG)} documents of the largest size": replay(LONG),
    "JSON that is nested 20,000 times": lambda victim: victim.post("/api/v1/replay", NESTED, JSON_TYPE),
    f"{len(PATHS) * len(NUMBERS)} numbers that are too large": lambda victim: [
        send_number(victim, path, number) for path in PATHS for number in NUMBERS
    ],
    f"page of another site, {TIMES} times": repeat(get("/analyze", f"Referer: {FOREIGN}/page")),
    "1,000 slow readers of /openapi.json": read_slowly("/openapi.json", 1000, requests=4),
    "1,000 slow readers of /docs": read_slowly("/docs", 1000, requests=4),
}
GUARDED: Mapping[str, Send] = {
    f"{SHARES[EVENTS_PATH].of_all} event streams of one viewer": listen,
    f"{MOST_SESSIONS + 1:,} sign-ins of one viewer": lambda victim: [
        sign_in(victim, "viewer") for _ in range(MOST_SESSIONS + 1)
    ],
}
AGENT: Mapping[str, Send] = HEADS | {
    "64 slow readers of /metrics": read_slowly("/metrics", 64, requests=400),
    "64 slow readers of /": read_slowly("/", 64, requests=400),
}


def attack(program: str, name: str, *, victim: Victim, send: Send) -> Outcome:
    with suppress(OSError):  # a kernel that does not forget a peak
        Path(f"/proc/{victim.pid}/clear_refs").write_text("5")
    begun, cpu = time.monotonic(), read_cpu_seconds(victim.pid)
    with probing(victim) as (answers, unsent):
        send(victim)
        answers.append(ask(victim))
    outcome = Outcome(
        program,
        name,
        time.monotonic() - begun,
        read_cpu_seconds(victim.pid) - cpu,
        victim.read_cost().peak_bytes,
        max(unsent),
        max(answers),
    )
    print_progress(f"{program}: {name}: /livez {outcome.livez_seconds:.2f} s")
    return outcome


def ask(victim: Victim) -> float:
    """How long /livez takes. A refused one has no answer: then the limit is missed."""
    answer = victim.time("/livez")
    return answer.seconds if status_of(answer.response) == 200 else float("inf")


@contextmanager
def probing(victim: Victim) -> Iterator[tuple[list[float], list[int]]]:
    """The seconds of every /livez until the end of the block, and the bytes in the kernel that no client had taken."""
    answers, unsent, ended = [ask(victim)], [0], threading.Event()

    def probe() -> None:
        while not ended.wait(PROBE_EVERY_SECONDS):
            answers.append(ask(victim))
            unsent.append(victim.read_unsent())

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield answers, unsent
    finally:
        ended.set()
        thread.join()


def attack_from_pods(folder: Path) -> Outcome:
    """A kubelet message of 16 MiB and pods whose annotations are as large and as odd as they may be."""
    with FakeApiServer() as api, FakeKubelet(folder / "kubelet.sock", b"") as kubelet:
        flags = ("--kubernetes=true", "--node-name=node-a", f"--kubernetes-api={api.url}")
        with running_agent(folder, *flags, f"--pod-resources-kubelet-socket={kubelet.path}") as victim:

            def send(_: Victim) -> None:
                kubelet.response = b"\n\0" * (8 * MIB)
                before = kubelet.requests
                for number in range(64):
                    grants = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,2:" * 900}
                    odd = {"hami.io/vgpu-mig-allocations": NESTED_GRANT[: 16 * 1024], "gpu-fraction": "1" * SIZE}
                    api.add_pod(pod(f"pod-{number}", annotations={**grants, **odd, "a": "x" * 200_000}))
                deadline = time.monotonic() + 60
                while kubelet.requests == before and time.monotonic() < deadline:
                    time.sleep(0.1)
                time.sleep(5)

            return attack("agent", "64 pods of 280 kB and a kubelet message of 16 MiB", victim=victim, send=send)


def list_large_pods() -> Outcome:
    """The pods of a tenant as reclaim lists them, in a process of its own: an analyzer reads them in a cluster only."""
    with serving_large_pods() as url:
        begun = time.monotonic()
        command = [sys.executable, "-c", LIST_PODS, url, str(PODS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        cpu, peak = done.stdout.split()
        return Outcome("list of pods", f"{PODS:,} pods of 120 kB", time.monotonic() - begun, float(cpu), int(peak))


def run(folder: Path) -> list[Outcome]:
    outcomes: list[Outcome] = []
    starts = (("analyzer", running_analyzer, ANALYZER), ("analyzer", running_guarded_analyzer, GUARDED))
    for program, start, attacks in (*starts, ("agent", running_agent, AGENT)):
        own = Path(tempfile.mkdtemp(dir=folder))
        with start(own) as victim:
            outcomes += [attack(program, name, victim=victim, send=send) for name, send in attacks.items()]
    return [*outcomes, attack_from_pods(Path(tempfile.mkdtemp(dir=folder))), list_large_pods()]


def judge(outcomes: Sequence[Outcome]) -> list[Bar]:
    slowest = max(each.livez_seconds for each in outcomes if each.livez_seconds is not None)
    peak = max(each.peak_bytes + each.unsent_bytes for each in outcomes)
    return [
        at_most("/livez during every attack", LIVEZ_SECONDS, slowest, "s", "the slowest of all"),
        at_most("peak RSS and unsent bytes in every attack", PEAK_MIB, peak / MIB, "MiB", "the highest of all"),
    ]


def render(outcomes: Sequence[Outcome], load: float) -> str:
    rows = [
        [
            each.program,
            each.name,
            f"{each.seconds:.2f}",
            f"{each.cpu_seconds:.2f}",
            f"{each.peak_bytes / MIB:.0f}",
            f"{each.unsent_bytes / MIB:.0f}",
            "" if each.livez_seconds is None else f"{each.livez_seconds * 1000:,.0f}",
        ]
        for each in outcomes
    ]
    head = ("program", "attack", "seconds", "CPU, s", "peak RSS, MiB", "unsent, MiB", "slowest /livez, ms")
    about, note = describe_run(name_command("attacks")), f"load {load:.1f} at the start"
    parts = (render_head("Attacks", about, note), render_bars(judge(outcomes)), ABOUT, render_table(head, rows))
    return "\n".join(parts)


def measure() -> str:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        return render(run(Path(name)), load)


if __name__ == "__main__":
    sys.exit(publish("attacks", measure))
