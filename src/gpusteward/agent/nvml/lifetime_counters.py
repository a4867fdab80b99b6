"""What is counted over the life of the agent, through every closing and opening of NVML."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusteward.agent.nvml.events import XidLog
from gpusteward.core.gpus import Gpu
from gpusteward.core.signals import CLOCK_EVENTS


class ClockEvents:
    """How often each reason began to limit the clocks of each device."""

    def __init__(self) -> None:
        self._masks: dict[str, int] = {}
        self._counts: dict[str, Mapping[str, int]] = {}

    def note(self, uuid: str, mask: float) -> Mapping[str, int]:
        """Compare with the last mask of this device; the first is where counting begins."""
        now = int(mask)
        began = now & ~self._masks.get(uuid, now)
        self._masks[uuid] = now
        counts = self._counts.setdefault(uuid, dict.fromkeys(CLOCK_EVENTS.values(), 0))
        if began:
            counts = {name: counts[name] + bool(began & bit) for bit, name in CLOCK_EVENTS.items()}
            self._counts[uuid] = counts
        return counts


@dataclass(slots=True)
class Chronicle:
    """Counters, and who was seen at which index."""

    xids: XidLog = field(default_factory=XidLog)
    clocks: ClockEvents = field(default_factory=ClockEvents)
    known: dict[int, Gpu] = field(default_factory=dict)
