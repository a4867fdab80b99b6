"""`python -m bench.sites [NAME ...]`: what the analyzer says about the foreign sites of `tests/analyzer/sites`, each on
a real Prometheus. Writes bench/results/sites.md. Exits with 1 if a site is silently wrong. With names, these only, and
nothing is written.
"""

import sys
from collections import Counter
from collections.abc import Sequence

from bench.measure import describe_run, name_command, print_progress
from bench.report import publish, render_head
from tests.analyzer.sites.drive import NAMED, RIGHT, UNKNOWN, WRONG, Outcome, run
from tests.analyzer.sites.variants import VARIANTS


def render_page(outcomes: Sequence[Outcome]) -> str:
    results = Counter(one.result for one in outcomes)
    title = ("site", "what is changed", "GPUs", "holders", "verdicts", "health", "finding", "result")
    rows = [
        (one.variant.name, one.variant.change, one.gpus, one.holders, one.verdicts, one.health, one.finding, one.result)
        for one in outcomes
    ]
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in [title, ("---",) * len(title), *rows])
    return "\n".join(
        [
            render_head("Sites: what the analyzer says about foreign monitoring", describe_run(name_command("sites"))),
            "One simulated site, seen through other exporters, labels, scrape jobs and engines, on a real Prometheus; "
            "found / true. Right: all GPUs, holders, nodes and verdicts. Degraded and named: health is not healthy, a "
            "finding names the cause, and `gpusteward doctor` repeats it. Unknown and named: the same, at health "
            "healthy, because at most half of the GPUs could not be judged; each says so itself. Numbers with # are "
            "issues of dcgm-exporter.\n",
            f"{len(outcomes)} sites: "
            + ", ".join(f"{results[each]} {each}" for each in (RIGHT, NAMED, UNKNOWN, WRONG))
            + "\n",
            *(f"| {line} |" for line in lines),
            "",
        ]
    )


def main(names: Sequence[str]) -> int:
    outcomes: list[Outcome] = []
    for variant in [each for each in VARIANTS if not names or each.name in names]:
        outcomes.append(run(variant))
        print_progress(f"{variant.name}: {outcomes[-1].result}")
    publish("sites", lambda: render_page(outcomes), is_dry=bool(names))
    return 1 if any(one.result == WRONG for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
