"""What reclaim knows about one kind of object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpusteward.analyzer.reclaim.kinds.objects import Json, KubeObject
from gpusteward.core.kinds import plural_of
from gpusteward.core.messages import Message

NOW = "{now}"
"""As a value: the time of the action, as RFC 3339."""
PRESENT = "{present}"
"""As a value that means suspended: any."""

FindRefusal = Callable[[KubeObject], Message | None]


class Right(NamedTuple):
    """A rule of RBAC."""

    group: str
    resource: str
    verbs: tuple[str, ...]


class Command(NamedTuple):
    """An object that is created to stop or resume another one, where no field of it does."""

    version: str
    kind: str
    action: str

    def make_body(self, *, name: str, namespace: str, target: Json) -> Json:
        """`target`: apiVersion, kind, name and uid of the object."""
        reference = {**target, "controller": True}
        return {
            "apiVersion": self.version,
            "kind": self.kind,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [reference]},
            "action": self.action,
            "target": reference,
            "reason": "gpusteward",
        }


@dataclass(frozen=True)
class Kind:
    """How objects of one kind are suspended, when they are not, and what that costs."""

    group: str
    name: str
    suspended: Mapping[str, Any]  # JSON pointer -> value that suspends it; empty: by eviction or by a command
    lost: Message  # what its users lose
    refusals: tuple[FindRefusal, ...] = ()
    is_pool: bool = False  # it has replicas, and pod-deletion-cost decides which of them go first
    replicas: str = ""  # JSON pointer of the number of replicas, if it has one
    stop: Command | None = None
    resume: Command | None = None
    is_evicted: bool = False  # its pods are evicted: a bare pod
    stopped_conditions: tuple[str, ...] = ()  # with which its controller says that it has stopped
    rights: tuple[Right, ...] = field(default=())  # beyond reading it

    @property
    def resource(self) -> str:
        return plural_of(self.name)

    def make_fields(self, now: str) -> dict[str, Any]:
        """What to set, by JSON pointer."""
        return {pointer: now if value == NOW else value for pointer, value in self.suspended.items()}

    def is_suspended(self, one: KubeObject) -> bool:
        """Whether somebody has suspended it already, by the fields that we would set."""
        return bool(self.suspended) and all(
            one.read(pointer) is not None if value in (NOW, PRESENT) else one.read(pointer) == value
            for pointer, value in self.suspended.items()
        )

    def find_refusal(self, one: KubeObject) -> Message | None:
        """Why this very object must not be touched; None: it may be."""
        return next((reason for find in self.refusals if (reason := find(one)) is not None), None)


def patch_right(group: str, kind: str) -> Right:
    return Right(group, plural_of(kind), ("patch",))
