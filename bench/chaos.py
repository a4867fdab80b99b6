"""`python -m bench.chaos`: reclaim under faults on a real control plane, with 500 workloads over 20 simulated days.

Writes bench/results/chaos.md. Exits with 1 if an invariant does not hold. `--workloads`, `--days`, `--cycles-per-day`,
`--seed` and `--most-seconds` change the size.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machines import About, describe_run
from bench.progress import print_progress
from bench.report import render_table
from tests.analyzer.reclaim.chaos.chaos import Chaos, ChaosPlan, ChaosReport
from tests.analyzer.reclaim.chaos.invariants import INVARIANTS
from tests.kubernetes.cluster import Cluster, find_programs, using_control_plane

RESULTS = Path(__file__).parent / "results"
ABOUT = """\
A real API server, controller manager and scheduler with nodes of kwok. Controllers of custom resources are those of the
test (`tests/analyzer/reclaim/chaos/controllers.py`); Deployment, ReplicaSet, StatefulSet, Job, CronJob and Pod have
their real ones. The process under test runs the real stage reclaim (reclaimer, Kubernetes client with the rights of
mode enforce, ledger and journal on SQLite, policy file); usage and owners are given to it from the known truth, and
time is simulated. Faults are drawn by the seed; how far a process is when it is killed from outside depends on the
machine. Every version of every object is watched and compared with the truth.

A bare pod is evicted, and nothing starts it again: it counts in all invariants but that of the original.
"""


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    programs, accounts = find_programs(), folder / "accounts"
    accounts.mkdir()
    with using_control_plane(programs, folder / "kubernetes") as address:
        yield Cluster(programs, folder / "kubernetes", accounts, address)


def render(report: ChaosReport, about: About, command: str) -> str:
    plan = report.plan
    lines = [
        "# Reclaim under faults",
        "",
        f"- Made by `{command}` on {about.date}.",
        f"- {about.processor}, {about.cores} cores; {about.python}",
        f"- Seed {plan.seed}; {plan.workloads} workloads; {report.cycles} cycles, {plan.cycles_per_day} per simulated "
        f"day; {report.seconds / 60:.0f} minutes on a machine with a load of {os.getloadavg()[1]:.0f}.",
        f"- The window of all policies is {2 * plan.step / 3600:g} h, the grace period {plan.step / 3600:g} h.",
        "",
        ABOUT,
        "## Invariants",
        "",
        render_table(
            ["never", "found", "result"],
            [
                [name, str(report.violations[name]), "MISSED" if report.violations[name] else "PASS"]
                for name in INVARIANTS
            ],
        ),
        *[f"- {text}" for text in report.details[:20]],
        "",
        "## Counts",
        "",
        _render_counts("", report.counts),
        "",
        "Actions by their last state:",
        "",
        _render_counts("state", report.states),
        "",
        "Cycles with a fault, by fault:",
        "",
        _render_counts("fault", report.faults),
        "",
        "Suspensions by kind:",
        "",
        _render_counts("kind", report.suspended_by_kind),
        "",
        "Errors that cycles and restores answered with:",
        "",
        _render_counts("error", dict(report.errors)) if report.errors else "none",
        "",
    ]
    return "\n".join(lines)


def _render_counts(title: str, counts: dict[str, int]) -> str:
    return render_table([title, "number"], [[name, f"{count:,}"] for name, count in sorted(counts.items())])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--days", type=float, default=20)
    parser.add_argument("--cycles-per-day", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-seconds", type=float, default=1500)
    given = parser.parse_args()
    plan = ChaosPlan(given.workloads, given.days, given.cycles_per_day, given.seed, given.most_seconds)
    command = " ".join(["python -m bench.chaos", *sys.argv[1:]])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_cluster(folder) as cluster:
            report = Chaos(cluster, folder, plan, print_progress=print_progress).run()
    text = render(report, describe_run(command, {}), command)
    (RESULTS / "chaos.md").write_text(text)
    print(text)
    sys.exit(0 if report.holds else 1)


if __name__ == "__main__":
    main()
