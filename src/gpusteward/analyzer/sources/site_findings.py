"""What a source says about the whole site: `Finding`s of its usage table."""

from collections.abc import Iterable, Iterator, Mapping

from gpusteward.analyzer.tables import Finding
from gpusteward.core.messages import Message
from gpusteward.messages import data_health as messages

MAX_NAMES = 3
"""A finding names a few examples; their number says the rest."""
MAX_LABELS = 30
NO_GPU_SERIES = "no-gpu-series"
"""Code of the finding with which a source says why it has no GPU; `gpu_presence` decides what that means."""


def find_failures(failures: Mapping[str, Message]) -> Iterator[Finding]:
    """Whatever could not be read is a warning that names it."""
    if failures:
        named = [messages.FAILED_PART.fill(name=name, reason=reason) for name, reason in failures.items()]
        names = join_messages(named[:MAX_NAMES])
        yield Finding("warning", "source-incomplete", messages.SOURCE_INCOMPLETE.fill(count=len(named), names=names))


def join_messages(parts: Iterable[Message]) -> Message:
    found = list(parts)
    return Message("; ".join(part.en for part in found), "；".join(part.zh for part in found))


def list_names(names: Iterable[str], limit: int = MAX_NAMES) -> str:
    """The first of these names, sorted."""
    found = sorted(set(names))
    return ", ".join(found[:limit]) + (", …" if len(found) > limit else "")
