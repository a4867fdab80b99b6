"""Calls, failures, tokens and cost since the start, for the metrics."""

from collections import Counter
from dataclasses import dataclass, field

from gpusteward.analyzer.explain.failures import ModelFailure
from gpusteward.analyzer.explain.settings import AiSettings


@dataclass(slots=True)
class ModelCounters:
    """Written by the thread that requests opinions, and `recalled` by the thread that runs cycles; read by any."""

    calls: int = 0  # requests sent, retries included
    opinions: int = 0  # usable responses
    recalled: int = 0  # opinions from the cache
    skipped: int = 0  # cases left for a later cycle: no budget or time left, or a fatal failure
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0  # in the currency of the prices
    failures: Counter[ModelFailure] = field(default_factory=Counter)

    def add_tokens(self, input_tokens: int, output_tokens: int, *, settings: AiSettings) -> None:
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cost += input_tokens / 1000 * settings.price_per_1k_input_tokens
        self.cost += output_tokens / 1000 * settings.price_per_1k_output_tokens
