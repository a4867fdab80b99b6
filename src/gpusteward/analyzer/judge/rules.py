"""The settings of all rules. The first three sections of `Rules` are gpu-oour's, under its names."""

from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.judge.gpu_models import GpuDefaults
from gpusteward.analyzer.judge.proof import ProofRule
from gpusteward.analyzer.judge.score import Scoring, Thresholds
from gpusteward.analyzer.judge.signatures.active import ActiveRules
from gpusteward.analyzer.judge.signatures.idle import IdleRules
from gpusteward.analyzer.setting_values import SECTION


class SignatureRules(ActiveRules, IdleRules):
    """`judge.signatures.*`: one section per rule."""


class Rules(BaseModel):
    """Everything that `judge` needs besides the usage table and the history."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scoring: Scoring = Field(default_factory=Scoring, description="Weights of the score.")
    thresholds: Thresholds = Field(default_factory=Thresholds, description="Scores that separate the states.")
    gpu_defaults: GpuDefaults = Field(default_factory=GpuDefaults, description="Capacity of a GPU of unknown model.")
    activity: ActivityRule = Field(default_factory=ActivityRule, description="What idle requires.")
    proof: ProofRule = Field(default_factory=ProofRule, description="What proves idleness.")
    signatures: SignatureRules = Field(default_factory=SignatureRules, description="Kinds of use and idleness.")
    time_zone: str = Field(default="UTC", description="Where nights are nights.")
    cycle_seconds: float = Field(default=0, ge=0, description="From one window to the next; 0: windows overlap.")


class JudgeSettings(BaseModel):
    """`judge.*`: the rules that gpu-oour does not have."""

    model_config = SECTION

    activity: ActivityRule = Field(default_factory=ActivityRule)
    proof: ProofRule = Field(default_factory=ProofRule)
    signatures: SignatureRules = Field(default_factory=SignatureRules)
