"""gpu-oour's control webhook: one call per cycle for every GPU with low utilization, with gpu-oour's JSON.

The rows are those of `/results/low`. Allocations without a score are not among them: their utilization is unknown.
A call is a state: one that was not delivered before the next cycle is replaced by that cycle's, or dropped if the GPU
is no longer low. As in gpu-oour, no call says that a GPU is in use again.

Where a model is asked for its opinion, a GPU is not called for before the model was asked about it, as in gpu-oour: the
budget of a cycle may be too small for all of them. `ControlSettings.opinion_wait_minutes` limits how long that lasts.

Every call is signed if there is a secret:

    Idempotency-Key: 5f0c...                     the same for every attempt to deliver one event
    X-Gpusteward-Signature: t=1790000000,v1=9a3b...

A receiver checks it with the secret of `control.secret` or `control.secret_file`:

1. take `t` and `v1` from X-Gpusteward-Signature;
2. reject the call when `t` (seconds since 1970) is more than 300 s away from the receiver's clock: it may be a replay;
3. compute HMAC-SHA256 with the secret over the bytes of `t`, a dot, the value of Idempotency-Key, a dot, and the
   received body; reject the call unless its hexadecimal form equals `v1`, compared in constant time;
4. if this Idempotency-Key was processed before, respond 200 and do nothing: a call may arrive more than once, a
   repetition also after a newer event;
5. check `timestamp` in the body before acting: a call is sent until the next
   cycle, so it is at most about one interval old.

In Python:

    t, v1 = (part.split("=", 1)[1] for part in headers["X-Gpusteward-Signature"].split(","))
    signed = f"{t}.{headers['Idempotency-Key']}.".encode() + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    genuine = hmac.compare_digest(expected, v1) and abs(time.time() - int(t)) <= 300

A second signature scheme would be appended as `v2=`; receivers ignore parts that they do not know.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from gpusteward.analyzer.judge.resumption import seconds_until_morning
from gpusteward.analyzer.ledger.identities import clean_text, make_allocation_id
from gpusteward.analyzer.ledger.snoozes import clean_workload
from gpusteward.analyzer.notify.http_post import host_of, post
from gpusteward.analyzer.notify.outbox.records import (
    CONTROL,
    DeliveryError,
    OutboxEvent,
    PendingDelivery,
    make_event_key,
)
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.setting_values import read_secret
from gpusteward.analyzer.settings.notify import ControlSettings
from gpusteward.analyzer.tables import STATES
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log

log = Log(__name__)

SIGNATURE_HEADER = "X-Gpusteward-Signature"
KEY_HEADER = "Idempotency-Key"


class AwaitedOpinions:
    """GPUs of low utilization on which the model has no opinion, and since when. Carried over from cycle to cycle."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}  # by the id of their allocation; unix seconds

    def update(self, result: Result) -> frozenset[int]:
        """The rows that are not called for in this cycle."""
        ai, allocations = result.settings.ai, result.verdicts.usage.allocations
        if not (ai.enabled and ai.allows_requests):
            self._since = {}
            return frozenset()
        rows = [row for row in np.flatnonzero(result.is_low).tolist() if row not in result.opinions]
        ids = {row: make_allocation_id(allocations[row]) for row in rows}
        self._since = {each: self._since.get(each, result.at) for each in ids.values()}
        longest = result.settings.control.opinion_wait_minutes * 60
        waiting = frozenset(row for row, each in ids.items() if result.at - self._since[each] < longest)
        if waiting:
            log.info("control_calls_wait", gpus=len(waiting), reason="the model has no opinion on them yet")
        return waiting


def control_events(
    result: Result, *, snoozed: Collection[WorkloadKey] = (), waiting: Collection[int] = ()
) -> Iterator[OutboxEvent]:
    """Events of one cycle, none about `snoozed` workloads: a receiver may take their GPUs; none about the rows
    `waiting`. The same cycle always gives the same keys."""
    verdicts, keys = result.verdicts, result.workloads.keys
    timestamp = datetime.fromtimestamp(result.at, UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    allocations = verdicts.usage.allocations
    for row in np.flatnonzero(result.is_low).tolist():
        key = keys[result.workloads.codes[row]]
        if row in waiting or (snoozed and clean_workload(key) in snoozed):
            continue
        body = _make_body(result, row, timestamp=timestamp)
        yield OutboxEvent(
            stream="/".join((CONTROL, *map(clean_text, key if key.cluster else key[:3]))),
            key=make_event_key(CONTROL, str(make_allocation_id(allocations[row])), str(round(result.at * 1000))),
            kind=CONTROL,
            target=CONTROL,
            body=msgspec.json.encode(body).decode(),
        )


def _make_body(result: Result, row: int, *, timestamp: str) -> dict[str, Any]:
    """gpu-oour's fields in its order, and the cluster where it is known."""
    allocation = result.verdicts.usage.allocations[row]
    instance = f"/{allocation.gpu_instance}" if allocation.gpu_instance else ""
    body: dict[str, Any] = {
        "gpu_id": clean_text(f"{allocation.gpu_uuid}{instance}"),
        "pod": clean_text(allocation.container.pod),
        "namespace": clean_text(allocation.container.namespace),
        "hostname": clean_text(allocation.node),
        "score": round(float(result.verdicts.score[row]), 1),
        "status": STATES[result.verdicts.state[row]].value,
        "timestamp": timestamp,
    }
    if allocation.cluster:
        body["cluster"] = clean_text(allocation.cluster)
    if len(result.spells):
        body |= _make_lendable(result, int(result.workloads.codes[row]))
    if opinion := result.opinions.get(row):
        body["ai_analysis"] = {
            "status": opinion.status,
            "confidence": round(opinion.confidence, 3),
            "reason": opinion.reason,
            "recommendation": opinion.recommendation,
        }
    return body


def _make_lendable(result: Result, number: int) -> Mapping[str, object]:
    """Of an idle workload: the probability that nobody needs its GPUs for this long; null: too few idle spells."""
    idle_since = float(result.workloads.idle_since[number])
    if np.isnan(idle_since):
        return {}
    horizons = {"1h": 3600.0, "4h": 4 * 3600.0, "morning": seconds_until_morning(result.at, result.spells.zone)}
    key, age = result.workloads.keys[number], max(0.0, result.at - idle_since)
    chances = {name: result.spells.estimate(key, age=age, horizon=each) for name, each in horizons.items()}
    return {
        "lendable": {
            name: None if chance.probability is None else round(1 - chance.probability, 3)
            for name, chance in chances.items()
        }
    }


@dataclass(frozen=True, slots=True)
class ControlSender:
    """Calls the webhook."""

    settings: ControlSettings = field(repr=False)
    clock: Callable[[], float] = time.time

    @property
    def host(self) -> str:
        return host_of(self.settings.api_url)

    def send(self, delivery: PendingDelivery) -> None:
        body = delivery.body.encode()
        headers = {**delivery.headers, KEY_HEADER: delivery.key}
        try:
            secret = read_secret(self.settings.secret)
        except (OSError, UnicodeDecodeError) as error:
            raise DeliveryError("control.secret_file cannot be read") from error
        if secret:
            headers[SIGNATURE_HEADER] = sign(secret, body, key=delivery.key, at=self.clock())
        post(self.settings.api_url, body, headers=headers, timeout=self.settings.timeout)


def sign(secret: str, body: bytes, *, key: str, at: float) -> str:
    """The value of the signature header."""
    seconds = int(at)
    signed = f"{seconds}.{key}.".encode() + body
    return f"t={seconds},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
