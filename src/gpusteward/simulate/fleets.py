"""Ready-made simulated nodes: layouts by sharing mode, the default node, and clusters of many nodes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpusteward.core.node.gpus import Share
from gpusteward.simulate.applications import Application, Program, ServerState, draw_application
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.devices import PlacementRequest
from gpusteward.simulate.load_curves import DAY, Between, Bursts, Chain, Constant, Lifetimes
from gpusteward.simulate.models import MODELS, GpuModel
from gpusteward.simulate.nodes import FIRST_PID, PIDS_PER_NODE, SimulatedNode
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import Kind

Plans = list[GpuPlan]


@dataclass(frozen=True, slots=True)
class LayoutContext:
    """Random values of a node and of its group, which shares some applications, and the GPU model."""

    random: SeededRandom
    group: SeededRandom
    model: GpuModel
    has_gaps: bool = True  # GPUs are sometimes free between two jobs

    def new(self, kind: Kind, *names: object, owner: str = "") -> Application:
        application = draw_application(kind, self.random.child("application", *names), owner=owner)
        return application if self.has_gaps else application.without_gaps()

    def shared(self, kind: Kind, name: str, *, owner: str) -> Application:
        """The application of that name, shared by the nodes of the group."""
        return draw_application(kind, self.group.child("application", name), owner=owner)


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """A kind of node. `models` are short names; the plans may depend on the drawn model."""

    models: tuple[str, ...]
    plan: Callable[[LayoutContext], Plans]
    draws_model_by_group: bool = False
    has_gaps: bool = True
    demo: tuple[Callable[[SeededRandom, float], Plans] | None, ...] = ()
    """In a demo, of its last GPUs: one for each of the first groups."""


def whole_gpu(application: Application, *, ordinal: int = 0) -> GpuPlan:
    """A whole GPU for one pod."""
    return GpuPlan((PlacementRequest(application, ordinal),))


def whole_gpus(application: Application, count: int, *, ordinal: int = 0) -> Plans:
    """Several whole GPUs for one pod."""
    return [whole_gpu(application, ordinal=ordinal)] * count


def shared_gpu(
    context: LayoutContext, share: Share, *, kinds: Sequence[Kind], capacities: Sequence[float] = ()
) -> GpuPlan:
    """One GPU shared by several pods, in equal parts by default."""
    parts = capacities or [1 / len(kinds)] * len(kinds)
    return GpuPlan(
        tuple(
            PlacementRequest(context.new(kind, share, kinds, number), share=share, capacity=part)
            for number, (kind, part) in enumerate(zip(kinds, parts, strict=True))
        )
    )


def mig_gpu(context: LayoutContext, *, kinds: Sequence[Kind], free: int = 0) -> GpuPlan:
    """A GPU with a 3g, a 2g and two 1g MIG instances; `free` of the small ones are not allocated."""
    one, two, three, _ = (profile.name for profile in context.model.mig_profiles)
    profiles = (three, two, one, one)
    requests = tuple(
        PlacementRequest(context.new(kind, Share.MIG, kinds, number), share=Share.MIG, profile=profile)
        for number, (kind, profile) in enumerate(zip(kinds, profiles[: 4 - free], strict=True))
    )
    return GpuPlan(requests, profiles[4 - free :])


def _train(ordinal: int) -> Callable[[LayoutContext], Plans]:
    def plan(context: LayoutContext) -> Plans:
        """Half of one big job; the other half is on another node of the group."""
        return whole_gpus(context.shared(Kind.TRAINING, "big job", owner="PyTorchJob"), 8, ordinal=ordinal)

    return plan


def _serve(context: LayoutContext) -> Plans:
    gateway = context.shared(Kind.INFERENCE, "gateway", owner="Deployment")
    return [
        whole_gpu(gateway),
        whole_gpu(gateway, ordinal=1),
        whole_gpu(context.new(Kind.INFERENCE, "second")),
        whole_gpu(context.new(Kind.PARKED, "left over")),
        *whole_gpus(context.new(Kind.INFERENCE, "tensor parallel", owner="StatefulSet"), 2),
        whole_gpu(context.new(Kind.KEEP_ALIVE, "held")),
        GpuPlan(),
    ]


def _research(context: LayoutContext) -> Plans:
    return [
        *whole_gpus(context.new(Kind.TRAINING, "job", owner="Job"), 2),
        *whole_gpus(context.new(Kind.HUNG, "hung"), 2),
        whole_gpu(context.new(Kind.STARVED, "starved")),
        whole_gpu(context.new(Kind.EMPTY, "empty")),
        whole_gpu(context.new(Kind.NOTEBOOK, "notebook")),
        whole_gpu(context.shared(Kind.INFERENCE, "gateway", owner="Deployment"), ordinal=2),
    ]


def _slice(context: LayoutContext) -> Plans:
    return [
        mig_gpu(context, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.PARKED, Kind.EMPTY)),
        mig_gpu(context, kinds=(Kind.TRAINING, Kind.NOTEBOOK, Kind.NOTEBOOK), free=1),
        mig_gpu(context, kinds=(Kind.HUNG, Kind.STARVED, Kind.KEEP_ALIVE, Kind.INFERENCE)),
        whole_gpu(context.new(Kind.NOTEBOOK, "whole")),
    ]


def _time_slice(context: LayoutContext) -> Plans:
    share = Share.TIME_SLICED
    return [
        shared_gpu(context, share, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.KEEP_ALIVE, Kind.PARKED)),
        shared_gpu(context, share, kinds=(Kind.NOTEBOOK, Kind.NOTEBOOK, Kind.EMPTY, Kind.NOTEBOOK)),
        shared_gpu(context, share, kinds=(Kind.INFERENCE, Kind.INFERENCE, Kind.STARVED)),
        shared_gpu(context, share, kinds=(Kind.PARKED, Kind.EMPTY)),
    ]


def _hami(context: LayoutContext) -> Plans:
    share = Share.HAMI
    return [
        shared_gpu(context, share, kinds=(Kind.TRAINING, Kind.NOTEBOOK), capacities=(0.7, 0.3)),
        shared_gpu(context, share, kinds=(Kind.INFERENCE, Kind.PARKED, Kind.EMPTY), capacities=(0.5, 0.25, 0.25)),
        shared_gpu(context, share, kinds=(Kind.STARVED, Kind.KEEP_ALIVE), capacities=(0.6, 0.4)),
        whole_gpu(context.new(Kind.TRAINING, "whole", owner="Job")),
    ]


def _mps(context: LayoutContext) -> Plans:
    return [
        shared_gpu(context, Share.MPS, kinds=(Kind.INFERENCE, Kind.INFERENCE, Kind.INFERENCE, Kind.PARKED)),
        shared_gpu(context, Share.MPS, kinds=(Kind.INFERENCE, Kind.NOTEBOOK)),
    ]


def _fraction(context: LayoutContext) -> Plans:
    share = Share.FRACTION
    return [
        shared_gpu(context, share, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.PARKED), capacities=(0.5, 0.3, 0.2)),
        shared_gpu(context, share, kinds=(Kind.HUNG, Kind.INFERENCE), capacities=(0.5, 0.25)),
        whole_gpu(context.new(Kind.TRAINING, "whole", owner="Job")),
        GpuPlan(),
    ]


def _ratio(context: LayoutContext) -> Plans:
    return [
        shared_gpu(context, Share.RATIO, kinds=(Kind.INFERENCE, Kind.EMPTY)),
        shared_gpu(context, Share.RATIO, kinds=(Kind.NOTEBOOK, Kind.KEEP_ALIVE)),
    ]


HEALTH_CHECK_EVERY_SECONDS, HEALTH_CHECK_SECONDS = 25.0, 0.2
LOADING_SECONDS = 840.0
"""Shorter than the time for which the judge calls a pod starting."""


def _check_health(random: SeededRandom, _now: float) -> Plans:
    """A server without requests: nothing but its health checks runs."""
    checks = Lifetimes(HEALTH_CHECK_EVERY_SECONDS, 0.0, HEALTH_CHECK_SECONDS)
    application = draw_application(Kind.PARKED, random.child("health check"), owner="Deployment")
    return [whole_gpu(replace(application, work=checks))]


def _deploy(random: SeededRandom, now: float) -> Plans:
    """A server that was deployed a minute ago: it loads its model, then gets requests."""
    started_at = float(round(now - 60))
    requests = Bursts(random.number("requests"), 60.0, Constant(0.25), lowest_level=0.3)
    application = replace(
        draw_application(Kind.INFERENCE, random.child("deployed"), owner="Deployment"),
        lifetimes=Lifetimes(2000 * DAY, started_at, 1000 * DAY),
        work=Chain(Between(started_at + LOADING_SECONDS, math.inf), requests),
    )
    return [whole_gpu(application)]


def _serve_for_another(random: SeededRandom, _now: float) -> Plans:
    """A pod of llm-d's fast model actuation: it holds the GPU, and another pod, which holds none, has the server."""
    application = draw_application(Kind.INFERENCE, random.child("pair"), owner="Deployment")
    program = Program("Deployment", "chat-requester", "inference-server", "VLLM::EngineCore")
    return [whole_gpu(replace(application, program=program, has_servers=True))]


UNASKED_SECONDS = 3 * DAY
SERVER_TEAM = ("ml-platform", "platform")


def _serve_nobody(name: str, state: ServerState) -> Callable[[SeededRandom, float], Plans]:
    """A server of vLLM that nobody has asked for days: it waits with its model in memory, or sleeps and has left little
    of it there."""

    def plan(random: SeededRandom, now: float) -> Plans:
        presence = Lifetimes(2000 * DAY, float(round(now - UNASKED_SECONDS)), 1000 * DAY)
        program = Program("Deployment", name, "vllm", "VLLM::EngineCore")
        own = random.child(name)
        return [whole_gpu(Application(Kind.PARKED, program, *SERVER_TEAM, own, presence, server=state))]

    return plan


_wait = _serve_nobody("chat-preview", ServerState.SILENT)
_sleep = _serve_nobody("chat-nightly", ServerState.ASLEEP)
KEPT_BUSY_SECONDS, KEPT_BUSY_RATIO = 6 * DAY, 0.8


def _keep_busy(random: SeededRandom, now: float) -> Plans:
    """A script that has held a GPU at four fifths for days and nights: as busy as a training, by utilization."""
    presence = Lifetimes(2000 * DAY, float(round(now - KEPT_BUSY_SECONDS)), 1000 * DAY)
    application = draw_application(Kind.KEEP_ALIVE, random.child("kept busy"))
    work = Chain(presence, Constant(KEPT_BUSY_RATIO))
    return [whole_gpu(replace(application, lifetimes=presence, work=work))]


STALLED_SECONDS = 2 * DAY
RUN_SECONDS, RESTART_SECONDS = 20 * DAY, 600.0


def _stall(random: SeededRandom, now: float) -> Plans:
    """Training on all GPUs of the node that was restarted two days ago. One rank never got to the first collective:
    its GPU is silent, and the kernels of all others wait for it."""
    started_at = float(round(now - STALLED_SECONDS))
    waiting = replace(
        draw_application(Kind.STALLED, random.child("stalled")), lifetimes=Lifetimes(2000 * DAY, started_at, 1000 * DAY)
    )
    silent = replace(waiting, work=Constant(0.0))
    until_then = Lifetimes(2000 * DAY, started_at - RUN_SECONDS + 2000 * DAY, RUN_SECONDS - RESTART_SECONDS)
    before = PlacementRequest(replace(waiting, kind=Kind.TRAINING, lifetimes=until_then))
    return [GpuPlan((before, PlacementRequest(silent if index == 5 else waiting))) for index in range(8)]


LOAD_PROGRAM = Program("Job", "gpu-load", "load", "python3")
LOAD_TEAM = ("ml-platform", "platform")


def create_load_application(number: int, *, ratio: float, since: float, until: float) -> Application:
    """The pod of deploy/examples/load.yaml: it keeps its GPU busy for a while, then it is gone."""
    presence = Lifetimes(2000 * DAY, since, until - since)
    namespace, team = LOAD_TEAM
    random = SeededRandom(number).child("load", since)
    work = Chain(Between(since, until), Constant(ratio))
    return Application(Kind.TRAINING, LOAD_PROGRAM, namespace, team, random, presence, work)


def _show(context: LayoutContext) -> Plans:
    """Eight GPUs with every sharing mode and every kind of workload at once."""
    return [
        *whole_gpus(context.new(Kind.TRAINING, "job", owner="PyTorchJob"), 2),
        mig_gpu(context, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.PARKED, Kind.EMPTY)),
        shared_gpu(context, Share.TIME_SLICED, kinds=(Kind.INFERENCE, Kind.NOTEBOOK, Kind.KEEP_ALIVE, Kind.PARKED)),
        shared_gpu(context, Share.MPS, kinds=(Kind.INFERENCE, Kind.INFERENCE, Kind.NOTEBOOK)),
        shared_gpu(context, Share.HAMI, kinds=(Kind.STARVED, Kind.INFERENCE), capacities=(0.6, 0.4)),
        shared_gpu(context, Share.FRACTION, kinds=(Kind.HUNG, Kind.INFERENCE), capacities=(0.5, 0.25)),
        shared_gpu(context, Share.RATIO, kinds=(Kind.KEEP_ALIVE, Kind.EMPTY)),
    ]


LAYOUTS: tuple[NodeLayout, ...] = (
    NodeLayout(("h100", "h200", "b200", "a100-80gb"), _train(0), draws_model_by_group=True),
    NodeLayout(("h100", "h200", "b200", "a100-80gb"), _train(1), draws_model_by_group=True, demo=(None, _stall)),
    NodeLayout(("l40s", "l4", "a10"), _serve, demo=(_check_health, _serve_for_another, _wait)),
    NodeLayout(("a100-40gb", "a100-80gb", "h100", "h200"), _slice),
    NodeLayout(("t4", "l4"), _time_slice),
    NodeLayout(("a100-80gb", "h100", "v100"), _research),
    NodeLayout(("v100", "rtx4090"), _hami),
    NodeLayout(("a10", "l4", "l40s"), _mps),
    NodeLayout(("h100", "a100-80gb"), _fraction, demo=(_deploy, _keep_busy, _sleep)),
    NodeLayout(("rtx4090", "t4"), _ratio),
)
"""A fleet uses them in turn; ten consecutive nodes are a group."""

DEFAULT_LAYOUT = NodeLayout(("h100",), _show, has_gaps=False)


def create_context(random: SeededRandom, group: SeededRandom, *, layout: NodeLayout) -> tuple[str, LayoutContext]:
    """The short name of the model, and the context for a node of that layout."""
    short = (group if layout.draws_model_by_group else random).pick(layout.models, "model")
    return short, LayoutContext(random, group, MODELS[short], layout.has_gaps)


NODES_WITH_OWN_PIDS = 250
"""Number of nodes with distinct pids below the kernel's limit of 4,194,304; later nodes reuse them."""


def default_node(seed: int = 0, *, name: str = "simulated-node") -> SimulatedNode:
    """Eight GPUs with every sharing mode and every kind of workload at once."""
    random = SeededRandom(seed).child("default")
    _, context = create_context(random, random, layout=DEFAULT_LAYOUT)
    return SimulatedNode(name, DEFAULT_LAYOUT.plan(context), model=context.model, seed=seed)


def fleet(nodes: int, seed: int = 0, *, demo_at: float | None = None) -> list[SimulatedNode]:
    """A mixed cluster: ten kinds of nodes in turn, some applications spread over several of them.

    With `demo_at`, two more of them in the first group: one that was just deployed, one with health checks only; two
    inference servers without requests in the third, of which one sleeps; two in
    the second group: one that holds its GPU for another pod, and one that is kept busy artificially; half of the big
    job there is one that is stalled; and every second node with MIG instances has a DCGM hostengine: an A100 without
    one shows what is unknown then. The stalled job is on H100: they have profiling, and others of them are idle, which
    tells what a waiting one may draw.
    """
    return [_node(number, SeededRandom(seed), demo_at) for number in range(nodes)]


def _node(number: int, random: SeededRandom, demo_at: float | None) -> SimulatedNode:
    group, index = divmod(number, len(LAYOUTS))
    layout = LAYOUTS[index]
    demo = layout.demo[group] if demo_at is not None and group < len(layout.demo) else None
    if demo is _stall:
        layout = replace(layout, models=("h100",))
    short, context = create_context(random.child("node", number), random.child("group", group), layout=layout)
    plans = layout.plan(context)
    if demo is not None and demo_at is not None:
        own = demo(context.random, demo_at)
        plans[-len(own) :] = own
    has_hostengine = demo_at is not None and group % 2 == 0 and layout.plan is _slice
    return SimulatedNode(
        f"{short}-{number:03d}",
        plans,
        model=context.model.with_hostengine() if has_hostengine else context.model,
        seed=context.random.seed,
        first_pid=FIRST_PID + number % NODES_WITH_OWN_PIDS * PIDS_PER_NODE,
    )
