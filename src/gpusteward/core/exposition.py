"""Families of samples -> a page Prometheus can read, in the text format and in OpenMetrics.

Sample lines are the same in both formats, so they are made once; only the headers differ. The label part
of a line is kept between cycles (`LabelCache`): it is what costs, and it hardly ever changes.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from gpusteward.core.metrics import Kind, Metric

Samples = list[tuple[str, float]]  # rendered labels, value

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(slots=True)
class Family:
    """A metric and its samples. Label parts must be unique within one family."""

    metric: Metric
    samples: Samples


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page in both formats; `# EOF` is not on it yet, so that more families can follow."""

    text: bytes
    openmetrics: bytes


class LabelCache:
    """Rendered label parts, kept for as long as each cycle asks for them again: bounded by what is alive."""

    def __init__(self) -> None:
        self._now: dict[Hashable, str] = {}
        self._before: dict[Hashable, str] = {}

    def start_cycle(self) -> None:
        """Forget what the last cycle did not use."""
        self._before, self._now = self._now, {}

    def render(self, labels: tuple[tuple[str, str], ...]) -> str:
        """`{a="b",c="d"}`, or nothing for no labels."""
        return self.keep(labels, lambda: labels)

    def keep(self, key: Hashable, build: Callable[[], Iterable[tuple[str, str]]]) -> str:
        """The same for labels that a shorter key stands for: they are built only when the key is new."""
        text = self._now.get(key)
        if text is None:
            text = self._before.get(key)
            if text is None:
                text = render_labels(build())
            self._now[key] = text
        return text


def render_labels(labels: Iterable[tuple[str, str]]) -> str:
    """An empty label is no label to Prometheus, so it is left out."""
    inside = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels if value)
    return f"{{{inside}}}" if inside else ""


def escape_label(value: str) -> str:
    """Escape as the text format asks; what is not valid UTF-8 or a NUL must not reach the page."""
    if value.isalnum():
        return value
    value = value.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"").replace("\r", " ")


def render_page(families: Iterable[Family]) -> Page:
    """Render families in order; those without samples leave no trace."""
    text: list[str] = []
    openmetrics: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines = render_lines(family.metric, family.samples)
        text += (render_text_header(family.metric), lines)
        openmetrics += (render_openmetrics_header(family.metric), lines)
    return Page("".join(text).encode(), "".join(openmetrics).encode())


def render_lines(metric: Metric, samples: Samples) -> str:
    """The samples of a family, or some of them: the same in both formats."""
    name = metric.name
    return "".join([f"{name}{labels} {render_value(value)}\n" for labels, value in samples])


def render_value(value: float) -> str:
    """Whole numbers without a fraction, others in the shortest form that reads back the same."""
    text = repr(value)
    return text[:-2] if text.endswith(".0") else _SPECIAL.get(text, text)


_SPECIAL: Mapping[str, str] = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def render_text_header(metric: Metric) -> str:
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    kind = "untyped" if metric.kind is Kind.UNTYPED else metric.kind.value
    return f"# HELP {metric.name} {help_text}\n# TYPE {metric.name} {kind}\n"


def render_openmetrics_header(metric: Metric) -> str:
    """OpenMetrics wants counters to end in `_total`; an older name that does not is of unknown type there."""
    name, kind = metric.name, metric.kind.value
    if metric.kind is Kind.COUNTER:
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    elif metric.kind is Kind.UNTYPED:
        kind = "unknown"
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
