"""Which faults a cycle meets, by a seed."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """Of one cycle. Seconds are real ones after its start; negative: not."""

    usage: str = "whole"  # failed: no cycle; stale: the last result again; partial; gone: not readable before an action
    die_at_step: int = -1  # the process kills itself at this step of an action
    kill_seconds: float = -1.0  # it is killed from outside
    cut_seconds: float = -1.0  # the API server cannot be reached from then on
    cut_length: float = 0.0
    reset_seconds: float = -1.0  # all connections are reset once
    steal_seconds: float = -1.0  # somebody else takes the Lease
    runners: tuple[int, ...] = (0,)  # which replicas run this cycle
    is_switched_off: bool = False
    restore_dies_at_step: int = -1
    policies: str = "whole"  # of the policy file, while this cycle runs: empty, broken, missing, narrow
    restart_ratio: float = 0.0  # of the owners who restart their pods after a warning

    @property
    def names(self) -> list[str]:
        """Of all that are set, for counting."""
        found = {
            f"usage {self.usage}": self.usage != "whole",
            "kill -9 at a step": self.die_at_step > 0,
            "kill -9 at any time": self.kill_seconds >= 0,
            "API server cut off": self.cut_seconds >= 0,
            "connections reset": self.reset_seconds >= 0,
            "lease taken by somebody else": self.steal_seconds >= 0,
            "second replica acts": self.runners == (1,),
            "both replicas at once": len(self.runners) > 1,
            "switched off": self.is_switched_off,
            f"policy file {self.policies}": self.policies != "whole",
        }
        return [name for name, is_set in found.items() if is_set]


class FaultPlan:
    """Draws the faults of cycle after cycle. In a harsh run each is more than twice as frequent."""

    def __init__(self, chance: random.Random, *, is_harsh: bool = False) -> None:
        self._chance = chance
        self._factor = 2.5 if is_harsh else 1.0
        self._runner = 0
        self._off_cycles = 0

    def draw(self) -> Faults:
        def chance() -> float:
            return self._chance.random() / self._factor

        seconds = self._chance.uniform
        usages = ["failed", "stale", "partial", "gone"]
        if chance() < 0.04:
            self._runner = 1 - self._runner
        if self._off_cycles:
            self._off_cycles -= 1
        elif chance() < 0.02:
            self._off_cycles = 2
        return Faults(
            usage=self._chance.choice(usages) if chance() < 0.16 else "whole",
            die_at_step=self._chance.randint(1, 12) if chance() < 0.25 else -1,
            kill_seconds=seconds(0, 4) if chance() < 0.1 else -1.0,
            cut_seconds=seconds(0, 3) if chance() < 0.12 else -1.0,
            cut_length=seconds(0.3, 2.0),
            reset_seconds=seconds(0, 3) if chance() < 0.08 else -1.0,
            steal_seconds=seconds(0, 3) if chance() < 0.05 else -1.0,
            runners=(0, 1) if chance() < 0.08 else (self._runner,),
            is_switched_off=self._off_cycles > 0,
            restore_dies_at_step=self._chance.randint(1, 3) if chance() < 0.3 else -1,
            policies=self._chance.choice(("empty", "broken", "missing", "narrow")) if chance() < 0.06 else "whole",
            restart_ratio=0.1 * self._factor,
        )
