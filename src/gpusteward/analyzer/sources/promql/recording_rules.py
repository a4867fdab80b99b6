"""The recording rules that make a cycle cheap: the engine keeps the windows, the analyzer reads their last value.

`python -m gpusteward.analyzer.sources.promql.recording_rules > deploy/rules/recording.yaml`; for another window than
ten minutes add `--window-min 30`, which must be the analyzer's `prometheus.time_window_min`.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.expressions import RULE_INTERVAL_SECONDS, Window, rule_name, write_duration
from gpusteward.analyzer.sources.usage.dialects import (
    CORE_FOLDS,
    HAMI_NAMES,
    dcgm_names,
    dcgm_signals,
    hami_signals,
    native_signals,
)
from gpusteward.analyzer.sources.usage.quantities import Fold, Quantity, Signal
from gpusteward.core.metrics import METRICS

DEFAULT_WINDOW_SECONDS = 600.0
_HEAD = """\
# Windows that gpusteward's analyzer reads instead of having them computed in every cycle.
# Made by `python -m gpusteward.analyzer.sources.promql.recording_rules`.
# Names carry the window (prometheus.time_window_min).
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
    return f"  - name: gpusteward-{name}\n    interval: {write_duration(RULE_INTERVAL_SECONDS)}\n    rules:\n{rules}"


def _write_rule(metric: str, fold: Fold, window_seconds: float) -> str:
    record = rule_name(metric, fold, window_seconds)
    return f"      - record: {record}\n        expr: {Window(window_seconds).fold(metric, (), fold)}\n"


def _list_rules(signals: tuple[Signal, ...]) -> Iterator[tuple[str, Fold]]:
    """Each metric and fold once; the last value needs no rule."""
    pairs = [(signal.metric, fold) for signal in signals for fold in signal.folds if fold is not Fold.LAST]
    return iter(dict.fromkeys(pairs))


def main(arguments: Sequence[str] | None = None) -> str:
    """The rules that these arguments ask for. A window that the analyzer could not have ends the program."""
    parser = argparse.ArgumentParser(description="Write the recording rules that gpusteward's analyzer reads.")
    parser.add_argument(
        "--window-min",
        type=_check_window,
        default=DEFAULT_WINDOW_SECONDS / 60,
        metavar="MINUTES",
        help="prometheus.time_window_min of the analyzer (default: %(default)g)",
    )
    return write_rules(parser.parse_args(arguments).window_min * 60)


def _check_window(text: str) -> float:
    """Raises ValueError, of which argparse makes its own complaint."""
    return PrometheusSettings(time_window_min=float(text)).time_window_min


if __name__ == "__main__":
    print(main(), end="")
