"""What a person deployed: names, owner, team; and its pods, which come and go with its turns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpusteward.core.containers import Container, Workload
from gpusteward.simulate.load_curves import Lifetimes
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import Kind, draw_lifetimes

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes makes generated names of


@dataclass(frozen=True, slots=True)
class Program:
    """One line of the catalogue: what is deployed, how, and what its processes are called."""

    owner: str  # Kubernetes kind of the root owner
    name: str
    container: str
    process: str
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Pod:
    """One life of one pod."""

    container: Container
    container_id: str


@dataclass(frozen=True, slots=True)
class Application:
    """One deployed thing. Its pods on every node live the same turns."""

    kind: Kind
    program: Program
    namespace: str
    team: str
    random: SeededRandom
    lifetimes: Lifetimes

    @property
    def process_count(self) -> int:
        return 0 if self.kind is Kind.EMPTY else self.program.processes

    def without_gaps(self) -> "Application":
        """The same, but each pod stays until the next one comes."""
        return replace(self, lifetimes=replace(self.lifetimes, duration=self.lifetimes.period))

    def pod(self, generation: int, ordinal: int) -> Pod:
        """The pod with that ordinal in that turn."""
        workload = self._workload(generation)
        container = Container(
            self.namespace,
            self._pod_name(workload.name, generation, ordinal),
            self.random.uuid("pod", generation, ordinal),
            self.program.container,
            workload,
            (("app", self._stem()), ("team", self.team)),
            self.lifetimes.starts_at(generation),
            self._user(),
        )
        return Pod(container, self.random.hexadecimal(64, "container", generation, ordinal))

    def _user(self) -> str:
        """Whose it is: notebooks carry the name."""
        named = self.program.name.rpartition("-")[2]
        return named if named in PEOPLE else self.random.pick(PEOPLE, "user")

    def _stem(self) -> str:
        return f"{self.program.name}-{self.random.text(_LETTERS, 5, 'stem')}"

    def _workload(self, generation: int) -> Workload:
        """Jobs are made anew each turn; everything else keeps its name."""
        name = self._stem()
        if self.program.owner in ("Job", "PyTorchJob"):
            name = f"{name}-{self.random.text(_LETTERS, 4, 'run', generation)}"
        return Workload(self.program.owner, self.namespace, name)

    def _pod_name(self, name: str, generation: int, ordinal: int) -> str:
        if self.program.owner == "PyTorchJob":
            return f"{name}-master-0" if ordinal == 0 else f"{name}-worker-{ordinal - 1}"
        if self.program.owner in ("StatefulSet", "Notebook"):
            return f"{name}-{ordinal}"
        suffix = self.random.text(_LETTERS, 5, "pod name", generation, ordinal)
        if self.program.owner == "Deployment":
            return f"{name}-{self.random.hexadecimal(10, 'replica set', generation)}-{suffix}"
        return f"{name}-{suffix}"


_PYTHON = "/usr/bin/python3"

CATALOGUE: Mapping[Kind, tuple[Program, ...]] = {
    Kind.TRAINING: (
        Program("PyTorchJob", "llm-pretrain", "pytorch", _PYTHON),
        Program("PyTorchJob", "finetune-chat", "pytorch", _PYTHON),
        Program("Job", "train-ranker", "trainer", _PYTHON),
        Program("Job", "asr-conformer", "trainer", _PYTHON),
    ),
    Kind.INFERENCE: (
        Program("Deployment", "chat-vllm", "vllm", "VLLM::EngineCore"),
        Program("Deployment", "embeddings", "tei", "text-embeddings-router"),
        Program("Deployment", "ocr-triton", "triton", "tritonserver", processes=2),
        Program("StatefulSet", "rerank-api", "server", _PYTHON),
    ),
    Kind.NOTEBOOK: (
        Program("Notebook", "lab-chen", "notebook", "/opt/conda/bin/python"),
        Program("Notebook", "lab-garcia", "notebook", "/opt/conda/bin/python"),
        Program("Notebook", "lab-mueller", "notebook", "/opt/conda/bin/python", processes=2),
        Program("StatefulSet", "workbench-okafor", "code-server", "/opt/conda/bin/python"),
    ),
    Kind.PARKED: (
        Program("Deployment", "demo-llama", "vllm", "VLLM::EngineCore"),
        Program("Deployment", "translate-legacy", "server", _PYTHON),
        Program("StatefulSet", "ab-test-old-arm", "triton", "tritonserver"),
    ),
    Kind.EMPTY: (
        Program("Deployment", "debug-shell", "shell", ""),
        Program("Notebook", "lab-unused", "notebook", ""),
        Program("Job", "sleep-infinity", "main", ""),
    ),
    Kind.STARVED: (
        Program("Job", "video-classifier", "trainer", _PYTHON),
        Program("PyTorchJob", "imagenet-nfs", "pytorch", _PYTHON),
    ),
    Kind.HUNG: (
        Program("PyTorchJob", "moe-allreduce", "pytorch", _PYTHON),
        Program("Job", "graph-embed", "trainer", _PYTHON),
    ),
    Kind.KEEP_ALIVE: (
        Program("Deployment", "gpu-holder", "main", _PYTHON),
        Program("Notebook", "lab-overnight", "notebook", "/opt/conda/bin/python"),
    ),
}

PEOPLE = ("chen", "garcia", "mueller", "okafor", "tanaka", "silva", "novak", "wang", "haddad", "kowalski")

TEAMS: tuple[tuple[str, str], ...] = (
    ("nlp-research", "nlp"),
    ("vision", "vision"),
    ("recsys-prod", "recsys"),
    ("search-ranking", "search"),
    ("speech", "speech"),
    ("robotics-lab", "robotics"),
    ("student-projects", "university"),
    ("ml-platform", "platform"),
)
"""Namespace and team."""


def draw_application(kind: Kind, random: SeededRandom, *, owner: str = "") -> Application:
    """Something of that kind that a team deployed; `owner` asks for a Kubernetes kind where there is a choice."""
    programs = [program for program in CATALOGUE[kind] if program.owner == owner] or CATALOGUE[kind]
    namespace, team = random.pick(TEAMS, "team")
    program = random.pick(programs, "program")
    return Application(kind, program, namespace, team, random, draw_lifetimes(kind, random))
