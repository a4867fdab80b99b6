"""Results of large clusters, judged from usage tables: every GPU is held, by a workload of its own or by a few."""

import numpy as np

from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.api.server import make_result
from tests.analyzer.usage_tables import DAY, GIB, STEP, SUMS, WINDOW

MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L4")
KINDS = ("Deployment", "Job", "Notebook", "PyTorchJob")
SETTINGS = Settings(prices=PriceSettings(per_gpu_hour={"H100": 4, "A100": 2.8, "L4": 0.7}))
GPUS_PER_NODE = 8


def make_fleet(gpus: int, *, at: float, number: int = 1, seed: int = 0, settings: Settings = SETTINGS) -> Result:
    """One workload per GPU; about a third of them idle, others with another seed."""
    chance = np.random.default_rng(seed)
    busy = np.where(chance.random(gpus) < 0.67, chance.uniform(0.2, 1.0, gpus), 0.0)
    scales = {Measure.MEMORY_USED: 80 * GIB, Measure.POWER: 700.0, Measure.SM_CLOCK: 1.9e9, Measure.PROCESSES: 2.0}
    stats = {(measure, stat): busy * scales.get(measure, 1.0) for measure in Measure for stat in SUMS}
    stats |= {(Measure.MEMORY_TOTAL, stat): np.full(gpus, 80 * GIB) for stat in SUMS}
    stats |= {(Measure.POWER_LIMIT, stat): np.full(gpus, 700.0) for stat in SUMS}
    stats[Measure.CORE, Stat.COUNT] = np.full(gpus, WINDOW / STEP)
    held = [_hold(each, at) for each in range(gpus)]
    return make_result(UsageTable(at, WINDOW, held, stats, np.ones(gpus)), settings=settings, number=number)


def _hold(number: int, at: float) -> AllocationKey:
    namespace = f"team-{number % 40:02}"
    owner = Workload(KINDS[number % len(KINDS)], namespace, f"app-{number:05}")
    container = Container(namespace, f"app-{number:05}-0", f"uid-{number}", "main", owner, (), at - DAY)
    node, index = divmod(number, GPUS_PER_NODE)
    model = MODELS[node % len(MODELS)]
    return AllocationKey(f"GPU-{number:05}", "", container, f"node-{node:04}", str(index), model, "exclusive")
