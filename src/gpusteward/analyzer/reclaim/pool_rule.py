"""The pool rule: how many replicas an owner with interchangeable replicas needs (pure).

`keep = ceil(headroom x the most replicas active at once over the window) + 1`. What is above is surplus, and can be
given back by lowering the replicas, longest idle pods first. It gains with size: few replicas have no surplus. It
assumes that traffic can go to any replica, which only a person can know.
"""

from math import ceil

from gpusteward.analyzer.reclaim.policies.effective import KeepRule

_ROUNDING = 1e-9


def compute_keep(most_active: int, rule: KeepRule) -> int:
    """How many replicas stay. At least one."""
    return ceil(rule.headroom * most_active - _ROUNDING) + 1
