"""Every rule's settings in one value. The first three sections are gpu-oour's, under its names."""

from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.judge.capacities import GpuDefaults
from gpusteward.analyzer.judge.history import MemoryRule
from gpusteward.analyzer.judge.score import Scoring
from gpusteward.analyzer.judge.signatures.table import SignatureRules
from gpusteward.analyzer.judge.states import Thresholds


class Rules(BaseModel):
    """What `judge` judges by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scoring: Scoring = Field(default_factory=Scoring, description="Weights of the score.")
    thresholds: Thresholds = Field(default_factory=Thresholds, description="Scores that separate the states.")
    gpu_defaults: GpuDefaults = Field(default_factory=GpuDefaults, description="Capacity of a GPU of unknown model.")
    activity: ActivityRule = Field(default_factory=ActivityRule, description="What idle asks for.")
    signatures: SignatureRules = Field(default_factory=SignatureRules, description="Kinds of (in)activity.")
    memory: MemoryRule = Field(default_factory=MemoryRule, description="What is remembered between cycles.")
