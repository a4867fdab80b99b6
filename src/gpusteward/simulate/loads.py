"""Loads started by hand on a simulated GPU (--simulate-load)."""

import math
import re
from dataclasses import dataclass

from gpusteward.core.errors import ConfigurationError

_FORM = re.compile(r"(?P<gpu>\d{1,3})=(?P<ratio>\d*\.?\d+)(?P<percent>%?)(:(?P<seconds>\d+(\.\d+)?)s?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Load:
    """A host process that keeps one GPU busy for a while; other work on the GPU is reduced."""

    gpu_index: int
    ratio: float
    since: float  # unix seconds
    until: float = math.inf


def parse_load(text: str, *, now: float) -> Load:
    """`3=0.9:120`: GPU 3 at 90 % for 120 s from now; `3=90%` until the program ends.

    Raises ConfigurationError.
    """
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise _refusal(text, "it is not of the form GPU=RATIO or GPU=RATIO:SECONDS")
    ratio = float(found["ratio"]) / (100 if found["percent"] else 1)
    seconds = float(found["seconds"] or math.inf)
    if not 0 < ratio <= 1:
        raise _refusal(text, f"the ratio {found['ratio']}{found['percent']} is not above 0 and at most 1")
    if seconds <= 0:
        raise _refusal(text, "a load of 0 seconds has no effect")
    return Load(int(found["gpu"]), ratio, now, now + seconds)


def _refusal(text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"invalid simulated load {text!r}: {reason}; for example, 3=0.9:120 is 90 % of GPU 3 for 120 seconds"
    )
