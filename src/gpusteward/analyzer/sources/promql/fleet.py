"""How many GPUs there are, held or not, by node and model: counted by the engine."""

from collections.abc import Iterable, Iterator, Mapping

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_vector
from gpusteward.analyzer.sources.promql.matchers import Matcher, Matchers, write_selector
from gpusteward.analyzer.sources.promql.plan import Found, Side, asks_devices
from gpusteward.analyzer.sources.usage.dialects import Dialect
from gpusteward.analyzer.sources.usage.quantities import Quantity

Fleet = Mapping[tuple[str, str], int]
_TELLING = (Quantity.IDENTITY, Quantity.MEMORY_USED, Quantity.CORE, Quantity.ENGINE)
"""What every GPU has, the surest first."""


def count_fleet(engine: Engine, found: Iterable[Found], condition: Matchers, *, at: float) -> Fleet:
    """(node, model) -> whole GPUs. A node is told by who is trusted most. Raises SourceError."""
    counts: dict[tuple[str, str], int] = {}
    for expression, labels in _ask(found, condition):
        told = {node for node, _ in counts}
        answer = decode_vector(engine.query(expression, at))
        for text, count in zip(answer.labels, answer.values.tolist(), strict=True):
            said = decode_labels(text)
            node, model = (said.get(label, "") for label in labels)
            if node not in told:
                counts[node, model] = int(count)
    return counts


def _ask(found: Iterable[Found], condition: Matchers) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each device once, however many series, exporters and MIG instances there are of it."""
    for one in found:
        # HAMi's own families do not know of GPUs that nobody holds.
        side = one.holder if one.dialect is Dialect.DCGM else one.device
        if side is not None:
            yield from _ask_side(side, condition, is_native=one.dialect is Dialect.NATIVE)


def _ask_side(side: Side, condition: Matchers, *, is_native: bool) -> Iterator[tuple[str, tuple[str, str]]]:
    spelling = side.spelling
    node, model = spelling.node, "model" if is_native else spelling.model
    # The agent names a MIG instance by itself, and its GPU is there too. DCGM names it by its GPU.
    whole = (Matcher(spelling.instance, "=", ""),) if is_native and spelling.instance else ()
    by = ", ".join(filter(None, (node, model)))
    devices = ", ".join(filter(None, (node, model, spelling.uuid)))
    for metric in _metrics(side):
        selector = write_selector(metric, (*asks_devices(condition), *whole))
        yield f"count by ({by}) (group by ({devices}) ({selector}))", (node, model)


def _metrics(side: Side) -> Iterable[str]:
    for quantity in _TELLING:
        if metrics := dict.fromkeys(signal.metric for signal in side.signals if signal.quantity is quantity):
            return metrics
    return ()
