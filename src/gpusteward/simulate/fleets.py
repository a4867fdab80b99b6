"""Ready-made nodes: one that shows everything, and clusters of many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpusteward.core.allocations import Share
from gpusteward.simulate.applications import Application, draw_application
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.devices import Booking
from gpusteward.simulate.models import MODELS, GpuModel
from gpusteward.simulate.nodes import FIRST_PID, PIDS_PER_NODE, SimulatedNode
from gpusteward.simulate.noise import Chance
from gpusteward.simulate.workloads import Kind

Plans = list[GpuPlan]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a node stands: its own luck, and that of its group, which shares some applications."""

    chance: Chance
    group: Chance
    model: GpuModel
    has_gaps: bool = True  # jobs leave their GPU free now and then

    def new(self, kind: Kind, *names: object, owner: str = "") -> Application:
        application = draw_application(kind, self.chance.child("application", *names), owner=owner)
        return application if self.has_gaps else application.without_gaps()

    def shared(self, kind: Kind, name: str, *, owner: str) -> Application:
        """The same one for every node of the group that asks for the name."""
        return draw_application(kind, self.group.child("application", name), owner=owner)


@dataclass(frozen=True, slots=True)
class Layout:
    """A kind of node. `models` are short names; the plans may depend on the model drawn."""

    models: tuple[str, ...]
    plan: Callable[[Site], Plans]
    draws_model_by_group: bool = False
    has_gaps: bool = True

    def draw_model(self, chance: Chance, group: Chance) -> str:
        return (group if self.draws_model_by_group else chance).pick(self.models, "model")


def holds(application: Application, *, ordinal: int = 0) -> GpuPlan:
    """A whole GPU for one pod."""
    return GpuPlan((Booking(application, ordinal),))


def holds_several(application: Application, count: int, *, ordinal: int = 0) -> Plans:
    """Several whole GPUs for one pod."""
    return [holds(application, ordinal=ordinal)] * count


def shares(site: Site, share: Share, *, kinds: Sequence[Kind], capacities: Sequence[float] = ()) -> GpuPlan:
    """One GPU for several; in equal parts unless told."""
    parts = capacities or [1 / len(kinds)] * len(kinds)
    return GpuPlan(
        tuple(
            Booking(site.new(kind, share, kinds, number), share=share, capacity=part)
            for number, (kind, part) in enumerate(zip(kinds, parts, strict=True))
        )
    )


def slices(site: Site, *, kinds: Sequence[Kind], free: int = 0) -> GpuPlan:
    """A GPU cut into a 3g, a 2g and two 1g instances, biggest first; `free` of the small ones have no holder."""
    one, two, three, _ = (profile.name for profile in site.model.mig_profiles)
    profiles = (three, two, one, one)
    bookings = tuple(
        Booking(site.new(kind, Share.MIG, kinds, number), share=Share.MIG, profile=profile)
        for number, (kind, profile) in enumerate(zip(kinds, profiles[: 4 - free], strict=True))
    )
    return GpuPlan(bookings, profiles[4 - free :])


def _train(ordinal: int) -> Callable[[Site], Plans]:
    def plan(site: Site) -> Plans:
        """Half of one big job; the other half is on the sister node."""
        return holds_several(site.shared(Kind.TRAINING, "big job", owner="PyTorchJob"), 8, ordinal=ordinal)

    return plan


def _serve(site: Site) -> Plans:
    gateway = site.shared(Kind.INFERENCE, "gateway", owner="Deployment")
    return [
        holds(gateway),
        holds(gateway, ordinal=1),
        holds(site.new(Kind.INFERENCE, "second")),
        holds(site.new(Kind.PARKED, "left over")),
        *holds_several(site.new(Kind.INFERENCE, "tensor parallel", owner="StatefulSet"), 2),
        holds(site.new(Kind.KEEP_ALIVE, "held")),
        GpuPlan(),
    ]


def _research(site: Site) -> Plans:
    return [
        *holds_several(site.new(Kind.TRAINING, "job", owner="Job"), 2),
        *holds_several(site.new(Kind.HUNG, "hung"), 2),
        holds(site.new(Kind.STARVED, "starved")),
        holds(site.new(Kind.EMPTY, "empty")),
        holds(site.new(Kind.NOTEBOOK, "notebook")),
        holds(site.shared(Kind.INFERENCE, "gateway", owner="Deployment"), ordinal=2),
    ]


def _slice(site: Site) -> Plans:
    return [
        slices(site, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.PARKED, Kind.EMPTY)),
        slices(site, kinds=(Kind.TRAINING, Kind.NOTEBOOK, Kind.NOTEBOOK), free=1),
        slices(site, kinds=(Kind.HUNG, Kind.STARVED, Kind.KEEP_ALIVE, Kind.INFERENCE)),
        holds(site.new(Kind.NOTEBOOK, "whole")),
    ]


def _time_slice(site: Site) -> Plans:
    share = Share.TIME_SLICED
    return [
        shares(site, share, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.KEEP_ALIVE, Kind.PARKED)),
        shares(site, share, kinds=(Kind.NOTEBOOK, Kind.NOTEBOOK, Kind.EMPTY, Kind.NOTEBOOK)),
        shares(site, share, kinds=(Kind.INFERENCE, Kind.INFERENCE, Kind.STARVED)),
        shares(site, share, kinds=(Kind.PARKED, Kind.EMPTY)),
    ]


def _hami(site: Site) -> Plans:
    share = Share.HAMI
    return [
        shares(site, share, kinds=(Kind.TRAINING, Kind.NOTEBOOK), capacities=(0.7, 0.3)),
        shares(site, share, kinds=(Kind.INFERENCE, Kind.PARKED, Kind.EMPTY), capacities=(0.5, 0.25, 0.25)),
        shares(site, share, kinds=(Kind.STARVED, Kind.KEEP_ALIVE), capacities=(0.6, 0.4)),
        holds(site.new(Kind.TRAINING, "whole", owner="Job")),
    ]


def _mps(site: Site) -> Plans:
    return [
        shares(site, Share.MPS, kinds=(Kind.INFERENCE, Kind.INFERENCE, Kind.INFERENCE, Kind.PARKED)),
        shares(site, Share.MPS, kinds=(Kind.INFERENCE, Kind.NOTEBOOK)),
    ]


def _fraction(site: Site) -> Plans:
    share = Share.FRACTION
    return [
        shares(site, share, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.PARKED), capacities=(0.5, 0.3, 0.2)),
        shares(site, share, kinds=(Kind.HUNG, Kind.INFERENCE), capacities=(0.5, 0.25)),
        holds(site.new(Kind.TRAINING, "whole", owner="Job")),
        GpuPlan(),
    ]


def _ratio(site: Site) -> Plans:
    return [
        shares(site, Share.RATIO, kinds=(Kind.INFERENCE, Kind.EMPTY)),
        shares(site, Share.RATIO, kinds=(Kind.NOTEBOOK, Kind.KEEP_ALIVE)),
    ]


def _show(site: Site) -> Plans:
    """Eight GPUs with every sharing mode and every kind of workload at once."""
    return [
        *holds_several(site.new(Kind.TRAINING, "job", owner="PyTorchJob"), 2),
        slices(site, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.PARKED, Kind.EMPTY)),
        shares(site, Share.TIME_SLICED, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.KEEP_ALIVE, Kind.PARKED)),
        shares(site, Share.MPS, kinds=(Kind.INFERENCE, Kind.INFERENCE, Kind.NOTEBOOK)),
        shares(site, Share.HAMI, kinds=(Kind.STARVED, Kind.INFERENCE), capacities=(0.6, 0.4)),
        shares(site, Share.FRACTION, kinds=(Kind.HUNG, Kind.INFERENCE), capacities=(0.5, 0.25)),
        shares(site, Share.RATIO, kinds=(Kind.KEEP_ALIVE, Kind.EMPTY)),
    ]


LAYOUTS: tuple[Layout, ...] = (
    Layout(("h100", "h200", "b200", "a100-80gb"), _train(0), draws_model_by_group=True),
    Layout(("h100", "h200", "b200", "a100-80gb"), _train(1), draws_model_by_group=True),
    Layout(("l40s", "l4", "a10"), _serve),
    Layout(("a100-40gb", "a100-80gb", "h100", "h200"), _slice),
    Layout(("t4", "l4"), _time_slice),
    Layout(("a100-80gb", "h100", "v100"), _research),
    Layout(("v100", "rtx4090"), _hami),
    Layout(("a10", "l4", "l40s"), _mps),
    Layout(("h100", "a100-80gb"), _fraction),
    Layout(("rtx4090", "t4"), _ratio),
)
"""A fleet goes through them in turn; ten nodes in a row are a group."""

SHOWCASE = Layout(("h100",), _show, has_gaps=False)


def stand(chance: Chance, group: Chance, *, layout: Layout) -> tuple[str, Site]:
    """A site for a node of that layout, and the short name of its model."""
    short = layout.draw_model(chance, group)
    return short, Site(chance, group, MODELS[short], layout.has_gaps)


NODES_WITH_OWN_PIDS = 250
"""So many nodes have pids of their own below the kernel's limit of 4,194,304; later ones repeat them."""


def default_node(seed: int = 0, *, name: str = "simulated-node") -> SimulatedNode:
    """Eight GPUs with every sharing mode and every kind of workload at once."""
    chance = Chance(seed).child("default")
    _, site = stand(chance, chance, layout=SHOWCASE)
    return SimulatedNode(name, SHOWCASE.plan(site), model=site.model, seed=seed)


def fleet(nodes: int, seed: int = 0) -> list[SimulatedNode]:
    """A mixed cluster: ten kinds of nodes in turn, some applications spread over several of them."""
    return [_node(number, Chance(seed)) for number in range(nodes)]


def _node(number: int, chance: Chance) -> SimulatedNode:
    group, place = divmod(number, len(LAYOUTS))
    layout = LAYOUTS[place]
    short, site = stand(chance.child("node", number), chance.child("group", group), layout=layout)
    return SimulatedNode(
        f"{short}-{number:03d}",
        layout.plan(site),
        model=site.model,
        seed=site.chance.seed,
        first_pid=FIRST_PID + number % NODES_WITH_OWN_PIDS * PIDS_PER_NODE,
    )
