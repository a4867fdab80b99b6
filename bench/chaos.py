"""`python -m bench.chaos`: reclaim under faults on a real control plane, with 500 workloads over 20 simulated days.

Writes bench/results/chaos.md. Exits with 1 if an invariant does not hold. `--workloads`, `--days`, `--cycles-per-day`
and `--most-seconds` change the size; `--seed` may be given several times, one run each; `--harsh SEED` is a run with
faults that are more than twice as frequent.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.measure import describe_run, name_command, print_progress
from bench.report import publish, render_head, render_table
from tests.analyzer.reclaim.chaos.chaos import Chaos, ChaosPlan, ChaosReport
from tests.analyzer.reclaim.chaos.invariants import INVARIANTS
from tests.kubernetes.cluster import Cluster, find_programs, using_control_plane

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


def render(reports: Sequence[ChaosReport]) -> str:
    lines = [
        render_head("Reclaim under faults", describe_run(name_command("chaos"))),
        ABOUT,
        "## Invariants",
        "",
        render_table(
            ["never", *map(_name, reports), "result"],
            [
                [
                    name,
                    *(str(report.violations[name]) for report in reports),
                    "MISSED" if any(report.violations[name] for report in reports) else "PASS",
                ]
                for name in INVARIANTS
            ],
        ),
        *[f"- {_name(report)}: {text}" for report in reports for text in report.details[:20]],
        *(line for report in reports for line in _render_run(report)),
    ]
    return "\n".join(lines)


def _name(report: ChaosReport) -> str:
    return f"seed {report.plan.seed}{', harsh' if report.plan.is_harsh else ''}"


def _render_run(report: ChaosReport) -> list[str]:
    plan = report.plan
    return [
        "",
        f"## Run with {_name(report)}",
        "",
        f"{plan.workloads} workloads; {report.cycles} cycles, {plan.cycles_per_day} per simulated day; "
        f"{report.seconds / 60:.0f} minutes. All policies have a window of {2 * plan.step / 3600:g} h and a grace "
        f"period of {plan.step / 3600:g} h.",
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


def _render_counts(title: str, counts: dict[str, int]) -> str:
    return render_table([title, "number"], [[name, f"{count:,}"] for name, count in sorted(counts.items())])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos")
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--days", type=float, default=20)
    parser.add_argument("--cycles-per-day", type=int, default=4)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--harsh", type=int, action="append", metavar="SEED")
    parser.add_argument("--most-seconds", type=float, default=1500)
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    given = parser.parse_args()
    runs = [(seed, False) for seed in given.seed or (() if given.harsh else (1,))]
    runs += [(seed, True) for seed in given.harsh or ()]
    reports: list[ChaosReport] = []
    for seed, is_harsh in runs:
        plan = ChaosPlan(given.workloads, given.days, given.cycles_per_day, seed, given.most_seconds, is_harsh)
        reports.append(_run(plan))
        publish("chaos", lambda: render(reports), is_dry=given.dry)  # after each: the next one may be interrupted
    return 0 if all(report.holds for report in reports) else 1


def _run(plan: ChaosPlan) -> ChaosReport:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_cluster(folder) as cluster:
            return Chaos(cluster, folder, plan, print_progress=print_progress).run()


if __name__ == "__main__":
    sys.exit(main())
