"""gpu-oour's control webhook: one call for every GPU of low utilization, every cycle, with its JSON.

The rows are those of `/results/low`: what has no score is not among them, since nobody knows that it is low.
`signing.py` says how a receiver checks a call and knows one that comes twice.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from gpusteward.analyzer.explain.answers import Opinion
from gpusteward.analyzer.judge.states import find_low
from gpusteward.analyzer.ledger.identities import clean_text, make_allocation_id
from gpusteward.analyzer.notify.channels import CONTROL
from gpusteward.analyzer.notify.outbox.records import OutboxEvent
from gpusteward.analyzer.notify.signing import make_key
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import STATES


def control_events(result: Result) -> Iterator[OutboxEvent]:
    """What the control webhook is told about a cycle; a cycle told twice has the same keys."""
    verdicts, keys = result.verdicts, result.workloads.keys
    timestamp = datetime.fromtimestamp(result.at, UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    allocations = verdicts.usage.allocations
    is_low = find_low(verdicts.score, verdicts.state, thresholds=result.settings.thresholds)
    for row in np.flatnonzero(is_low).tolist():
        event = make_event(result, row, timestamp=timestamp)
        yield OutboxEvent(
            stream="/".join((CONTROL, *map(clean_text, keys[result.workloads.codes[row]]))),
            key=make_key(CONTROL, str(make_allocation_id(allocations[row])), str(round(result.at * 1000))),
            kind=CONTROL,
            target=CONTROL,
            body=msgspec.json.encode(event).decode(),
        )


def make_event(result: Result, row: int, *, timestamp: str) -> dict[str, Any]:
    """gpu-oour's fields in its order."""
    allocation = result.verdicts.usage.allocations[row]
    event: dict[str, Any] = {
        "gpu_id": clean_text(
            f"{allocation.gpu_uuid}/{allocation.gpu_instance}" if allocation.gpu_instance else allocation.gpu_uuid
        ),
        "pod": clean_text(allocation.container.pod),
        "namespace": clean_text(allocation.container.namespace),
        "hostname": clean_text(allocation.node),
        "score": round(float(result.verdicts.score[row]), 1),
        "status": STATES[result.verdicts.state[row]].value,
        "timestamp": timestamp,
    }
    opinion = result.opinions.get(row)
    return event if opinion is None else event | {"ai_analysis": _analysis(opinion)}


def _analysis(opinion: Opinion) -> Mapping[str, object]:
    return {
        "status": opinion.status,
        "confidence": round(opinion.confidence, 3),
        "reason": opinion.reason,
        "recommendation": opinion.recommendation,
    }
