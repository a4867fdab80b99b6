"""The recording rules that make a cycle cheap: the engine keeps the windows, the analyzer reads their last value.

`python -m gpusteward.analyzer.read.prometheus.rules > deploy/rules/recording.yaml`
"""

from collections.abc import Iterator
from dataclasses import replace

from gpusteward.analyzer.read.prometheus.dialects import (
    CORE_FOLDS,
    HAMI_NAMES,
    dcgm_names,
    dcgm_signals,
    hami_signals,
    native_signals,
)
from gpusteward.analyzer.read.prometheus.expressions import Window, rule_name
from gpusteward.analyzer.read.prometheus.quantities import Fold, Quantity, Signal
from gpusteward.core.metrics import METRICS

DEFAULT_WINDOW_SECONDS = 600.0
_INTERVAL = "1m"
_HEAD = """\
# Windows that gpusteward's analyzer reads instead of having them computed in every cycle.
# Made by `python -m gpusteward.analyzer.read.prometheus.rules`; names carry the window (prometheus.time_window_min).
# Rules over metrics that a site does not have record nothing. All labels are kept, however the site spells them.
"""


def write_rules(window_seconds: float = DEFAULT_WINDOW_SECONDS) -> str:
    """The rules file for one window, as YAML."""
    groups = [
        ("native", native_signals({metric.name for metric in METRICS})),
        ("hami", hami_signals(HAMI_NAMES)),
        ("dcgm", _with_slices(dcgm_signals(set(dcgm_names())))),
    ]
    body = "".join(_write_group(name, signals, window_seconds) for name, signals in groups)
    return f"{_HEAD}groups:\n{body}"


def _with_slices(signals: tuple[Signal, ...]) -> tuple[Signal, ...]:
    """The engine's activity is the core of a MIG instance, so all that is asked of a core is asked of it too."""
    engines = (replace(signal, folds=CORE_FOLDS) for signal in signals if signal.quantity is Quantity.ENGINE)
    return (*signals, *engines)


def _write_group(name: str, signals: tuple[Signal, ...], window_seconds: float) -> str:
    rules = "".join(_write_rule(*rule, window_seconds) for rule in _list_rules(signals))
    return f"  - name: gpusteward-{name}\n    interval: {_INTERVAL}\n    rules:\n{rules}"


def _write_rule(metric: str, fold: Fold, window_seconds: float) -> str:
    record = rule_name(metric, fold, window_seconds)
    return f"      - record: {record}\n        expr: {Window(window_seconds).fold(metric, (), fold)}\n"


def _list_rules(signals: tuple[Signal, ...]) -> Iterator[tuple[str, Fold]]:
    """Each metric and fold once; the last value needs no rule."""
    pairs = [(signal.metric, fold) for signal in signals for fold in signal.folds if fold is not Fold.LAST]
    return iter(dict.fromkeys(pairs))


if __name__ == "__main__":
    print(write_rules(), end="")
