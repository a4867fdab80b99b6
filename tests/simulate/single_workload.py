"""A node with one GPU and one application."""

from gpusteward.core.node.gpus import GpuReading
from gpusteward.simulate.applications import Application, draw_application
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.devices import PlacementRequest
from gpusteward.simulate.ground_truth import Truth
from gpusteward.simulate.models import H100, GpuModel
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import Kind

NOW = 1_790_000_000.0
DAY = 86_400.0
HOUR = 3_600.0
KINDS_OF_ANY_FLEET = set(Kind) - {Kind.STALLED}
"""Only a gang of several GPUs stalls, and only a demo has one."""


def single_application(kind: Kind, seed: int) -> Application:
    return draw_application(kind, SeededRandom(seed).child("lone"))


def single_workload_node(kind: Kind, seed: int, *, model: GpuModel = H100) -> SimulatedNode:
    plan = GpuPlan((PlacementRequest(single_application(kind, seed)),))
    return SimulatedNode("lone", [plan], model=model, seed=seed)


def start_of_pod(kind: Kind, seed: int) -> float:
    """Start time of the application's pod that runs at NOW."""
    lifetimes = single_application(kind, seed).lifetimes
    return lifetimes.starts_at(lifetimes.generation(NOW))


def only_truth(node: SimulatedNode, at: float) -> Truth:
    (truth,) = node.truths(at).values()
    return truth


def only_reading(node: SimulatedNode, at: float) -> GpuReading:
    (reading,) = node.snapshot(at).readings
    return reading


def utilizations(node: SimulatedNode, moments: list[float]) -> list[float]:
    return [only_reading(node, at).signals["utilization_mean_ratio"] for at in moments]
