"""`gpusteward explain WORKLOAD`: the verdict on one workload with its reasons and evidence."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gpusteward.cli import flags
from gpusteward.cli.api.live_facts import read_live_facts
from gpusteward.cli.api.workload_facts import read_plan_facts
from gpusteward.cli.api.workloads import find_workload, label_workloads
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.tables import write_json, write_rows
from gpusteward.cli.output.terminal_text import Line, clean, write_paragraphs
from gpusteward.cli.output.verdict_texts import describe_ended, describe_evidence, describe_verdict, warn_stale
from gpusteward.cli.program import EXIT_OK
from gpusteward.core.messages import Message

REFUSED = Message("not reclaimed", "不回收")
"""Before the answer of a guard that refuses, beside a verdict."""
PLANNED = Message("reclaim", "回收")
"""Before what an action stops besides, beside a verdict."""

KEYS = (
    *("namespace", "pod", "container", "gpu", "node", "index", "model", "share", "activity", "state", "signature"),
    *("score", "doubt", "idle_since", "coverage", "core_mean_ratio", "core_peak_ratio", "memory_used_bytes"),
    *("memory_total_bytes", "power_watts", "reasons", "opinion_status", "opinion_confidence", "opinion_reason"),
    "proof",
)


ENDED_KEYS = (
    *("namespace", "kind", "name", "first_ms", "ended_ms", "devices", "users", "models", "nodes", "currency"),
    *("allocated_gpu_ms", "active_gpu_ms", "idle_gpu_ms", "unknown_gpu_ms"),
    *("active_cost_micros", "idle_cost_micros", "unknown_cost_micros"),
    *("effective_gpu_ms", "ineffective_gpu_ms", "effective_cost_micros", "ineffective_cost_micros"),
)
"""Of a workload that has ended."""


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "explain",
        "Show the verdict on one workload: reasons, evidence, and the opinion of a language model if any; "
        "of a workload that has ended its GPU-hours and cost.",
    )
    parser.add_argument("workload", metavar="WORKLOAD", help=flags.WORKLOAD_FORMS)
    flags.add_workload_flags(parser)
    flags.add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError for an unreachable analyzer or an unknown workload."""
    options = build_parser().parse(arguments)
    client, language = flags.make_analyzer_client(options), flags.language_of(options)
    name, ended = find_workload(client, options.workload, namespace=options.namespace, cluster=options.cluster)
    if ended is not None:
        if options.output == "json":
            write_json(ended)
        elif options.output == "csv":
            write_rows([{**ended, **ended.object("amounts")}], (), keys=ENDED_KEYS, output="csv")
        else:
            title = Line(str(name), is_title=True)
            write_paragraphs([title, *describe_ended(ended, language, now=time.time())], sys.stdout)
        return EXIT_OK
    detail = client.read(name.path, [*name.query, ("language", language)])
    if options.output in ("json", "csv"):
        warn_stale(detail.object("result"), language)
    if options.output == "json":
        write_json(detail)
    elif options.output == "csv":
        write_rows(list(_rows(detail)), (), keys=KEYS, output="csv")
    else:
        title = Line(label_workloads(client, [name])[name], is_title=True)
        plan = read_plan_facts(client, name, language)
        refusals = [Line(reason, REFUSED.text(language)) for reason in plan.refusals]
        refusals += [Line(reason, PLANNED.text(language)) for reason in plan.also_stops]
        label = Message("seen now", "当前情况").text(language)
        seen = [Line(clean(fact), label) for fact in read_live_facts(client, name, detail, language)]
        verdict = [*describe_verdict(detail, language), *describe_evidence(detail, language)]
        write_paragraphs([title, *seen, *verdict, *refusals], sys.stdout)
    return EXIT_OK


def _rows(detail: Row) -> Iterator[dict[str, Any]]:
    """One row per allocation."""
    for judged in detail.objects("allocations"):
        opinion = judged.object("opinion")
        yield {
            **judged.object("allocation"),
            "reasons": " ".join(judged.texts("reasons")),
            "opinion_status": opinion.text("status"),
            "opinion_confidence": opinion.get("confidence"),
            "opinion_reason": opinion.text("reason"),
        }
