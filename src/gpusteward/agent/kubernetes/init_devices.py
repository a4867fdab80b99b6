"""Devices that init containers take and the kubelet does not list, from the spec of a pod (pure).

The kubelet assigns all devices of a pod at once: an init container that ends before the main containers start passes
its devices on to them. What it has more than they request stays assigned for the life of the pod, and pod-resources
does not list it, because it omits init containers that end.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

_COUNT = re.compile("[0-9]{1,9}")


class _NamedClaim(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: list[_NamedClaim] | None = None


class ContainerSpec(msgspec.Struct, rename="camel"):
    """The part of a container's spec that is needed."""

    name: str = ""
    restart_policy: str | None = None
    resources: _Resources | None = None

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: whether it runs beside the main containers."""
        return self.restart_policy == "Always"

    def count_devices(self) -> dict[str, int]:
        """Requested devices by resource name. Other resources have no slash in their name, or a unit."""
        resources = self.resources or _Resources()
        amounts = {**(resources.limits or {}), **(resources.requests or {})}
        return {name: int(text) for name, text in amounts.items() if "/" in name and _COUNT.fullmatch(str(text))}

    def claim_names(self) -> set[str]:
        return {claim.name for claim in (self.resources and self.resources.claims) or ()}


@dataclass(frozen=True, slots=True)
class InitDevices:
    """What the init containers of a pod hold without being listed."""

    containers: frozenset[str]  # the init containers that request devices and end
    counts: Mapping[str, int] = field(default_factory=dict)  # resource -> devices
    claims: int = 0  # dynamic resource claims, each of an unknown number of devices, usually one


def find_init_devices(init: Sequence[ContainerSpec], main: Sequence[ContainerSpec]) -> InitDevices | None:
    """The unlisted devices of a pod with these containers; None if all are listed."""
    listed = [*main, *(each for each in init if each.is_sidecar)]
    ending = [each for each in init if not each.is_sidecar]
    counts = {
        resource: count
        for resource in {name for each in ending for name in each.count_devices()}
        if (count := _find_peak(init, resource) - _sum(listed, resource)) > 0
    }
    claims = {name for each in ending for name in each.claim_names()}
    unlisted_claims = len(claims.difference(*(each.claim_names() for each in listed)))
    holders = frozenset(each.name for each in ending if each.count_devices() or each.claim_names())
    return InitDevices(holders, counts, unlisted_claims) if counts or unlisted_claims else None


def _find_peak(init: Iterable[ContainerSpec], resource: str) -> int:
    """The most devices of an init container that ends, with the sidecars that were started before it."""
    peak = sidecars = 0
    for each in init:
        count = each.count_devices().get(resource, 0)
        if each.is_sidecar:
            sidecars += count
        else:
            peak = max(peak, sidecars + count)
    return peak


def _sum(containers: Iterable[ContainerSpec], resource: str) -> int:
    return sum(each.count_devices().get(resource, 0) for each in containers)
