"""Why an engine shows no GPU: what is left of its GPU metrics, and which scrape jobs are down."""

from collections.abc import Collection

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_vector
from gpusteward.analyzer.sources.promql.scheme_detection import read_metric_names
from gpusteward.analyzer.sources.site_findings import list_names
from gpusteward.analyzer.sources.usage.metric_schemes import HAMI_NAMES, dcgm_names
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages import data_health as messages

MAX_JOBS = 5


def explain_no_gpus(engine: Engine, at: float) -> Message:
    """Asked only while there is no GPU, so that it costs nothing otherwise. Raises nothing."""
    try:
        found = _explain_names(read_metric_names(engine, at))
        jobs = _list_jobs_down(engine, at)
    except SourceError as error:
        return messages.FAILED_PART.fill(name="GPU metrics", reason=error)
    if not jobs:
        return found
    down = messages.TARGETS_DOWN.fill(jobs=list_names(jobs, MAX_JOBS))
    return Message(f"{found.en} {down.en}", f"{found.zh}{down.zh}")


def _explain_names(names: Collection[str]) -> Message:
    """Of the last hour; current ones would have shown a GPU."""
    wanted = {*dcgm_names(), *HAMI_NAMES, metrics.ALLOCATION_INFO.name, metrics.GPU_INFO.name}
    if exported := wanted.intersection(names):
        return messages.NO_CURRENT_SERIES.fill(names=list_names(exported))
    rules = [name for name in names if ":" in name and any(word in name.lower() for word in ("gpu", "dcgm"))]
    return messages.ONLY_RULES.fill(names=list_names(rules)) if rules else messages.NO_METRICS


def _list_jobs_down(engine: Engine, at: float) -> list[str]:
    """One series per job, at most."""
    vector = decode_vector(engine.query("count by (job) (up == 0) unless on (job) (up == 1)", at))
    return [name for text in vector.labels if (name := decode_labels(text).get("job", ""))]
