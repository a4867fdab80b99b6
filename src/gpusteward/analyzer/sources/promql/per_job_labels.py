"""Scrape jobs that name the holder by another label than most.

`honor_labels` is chosen job by job. Where one job has it, `pod` is who holds the GPU; where the next has it not, that
is `exported_pod`, and `pod` the exporter. Read by the label of the others, the holders of a job would be nobody.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_names, decode_vector
from gpusteward.analyzer.sources.promql.matchers import Matcher, match_any, write_selector
from gpusteward.analyzer.sources.promql.plan import Found
from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES, find_spelling
from gpusteward.analyzer.sources.usage.quantities import Quantity
from gpusteward.logs import Log

log = Log(__name__)

Span = Iterable[tuple[str, str]]
_CALLERS = (Quantity.PRESENCE, Quantity.MEMORY_USED, Quantity.CORE, Quantity.ENGINE)


def divide_by_job(
    engine: Engine, found: Found, metrics: Collection[str], labels: Collection[str], *, at: float, span: Span
) -> Iterator[Found]:
    """The dialect as it is spelled by most, then by jobs with a spelling of their own. Asks nothing where only one
    label could name the holder. Raises SourceError."""
    yield found
    spelling = found.holder.spelling
    further = [name for name in CANDIDATES["pod"] if name in labels and name != spelling.pod]
    if not further or not spelling.job:
        return
    series = match_any("__name__", _choose_caller(found))
    for label, jobs in _find_jobs(engine, series, spelling.pod, further, at):
        only = match_any("job", sorted(jobs))
        fields = (("match[]", write_selector("", (match_any("__name__", metrics), only))), *span)
        own = find_spelling(decode_names(engine.fetch("/api/v1/labels", fields)))
        if own.pod == label:
            yield replace(found, holder=replace(found.holder, spelling=own), only=(only,))


def _choose_caller(found: Found) -> list[str]:
    """One family that everybody has, under all its names."""
    for quantity in _CALLERS:
        names = dict.fromkeys(signal.metric for signal in found.holder.signals if signal.quantity is quantity)
        if names:
            return list(names)
    return [signal.metric for signal in found.holder.signals[:1]]


def _find_jobs(
    engine: Engine, series: Matcher, usual: str, further: Iterable[str], at: float
) -> Iterator[tuple[str, set[str]]]:
    """Jobs without any holder under the usual label, by the one that they have holders under."""
    everybody = write_selector("", (series,))
    held = write_selector("", (series, Matcher(usual, "!=", "")))
    try:
        left = _list_jobs(engine, f"count by (job) ({everybody} unless on (job) {held})", at)
        for label in further:
            jobs = _list_jobs(engine, _ask_holders(series, label, left), at) if left else set[str]()
            left -= jobs
            if jobs:
                yield label, jobs
    except LimitError as error:
        log.warning("spellings_of_jobs_not_compared", usual=usual, reason=error)


def _ask_holders(series: Matcher, label: str, jobs: Collection[str]) -> str:
    """Where nobody holds a GPU, its `pod` may be the exporter: the very pod that is scraped."""
    of_jobs = match_any("job", sorted(jobs))
    told = write_selector("", (series, of_jobs, Matcher(label, "!=", "")))
    return f"count by (job) ({told} unless on (job, {label}) {write_selector('up', (of_jobs,))})"


def _list_jobs(engine: Engine, expression: str, at: float) -> set[str]:
    answer = decode_vector(engine.query(expression, at))
    return {decode_labels(text).get("job", "") for text in answer.labels} - {""}
