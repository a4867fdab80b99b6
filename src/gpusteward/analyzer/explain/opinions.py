"""Opinions: the structured output of a model, cleaned and bounded; the opinion made from it; and their cache."""

import threading
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

TEXT_LENGTH = 600

Status = Literal["active", "idle", "suspicious"]


@dataclass(frozen=True, slots=True)
class Opinion:
    """The opinion of a model on a case, beside the score of the rules."""

    status: Status
    confidence: float  # 0 to 1
    reason: str
    recommendation: str
    adjusted_score: float  # 0 to 100, by the model; it can only raise the score, see opinion_effects.py
    rule_score: float | None
    model: str
    asked_at: float  # unix seconds


def clean_text(text: str) -> str:
    """One line without control, formatting or unassigned characters, cut to length.

    Formatting characters include those that reverse or hide text.
    """
    kept = (" " if each.isspace() else each for each in text if each.isspace() or unicodedata.category(each)[0] != "C")
    line = " ".join("".join(kept).split())
    return line if len(line) <= TEXT_LENGTH else line[: TEXT_LENGTH - 1] + "…"


def _between(low: float, high: float) -> AfterValidator:
    return AfterValidator(lambda number: min(max(number, low), high))


Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, AfterValidator(clean_text)]


class ModelOutput(BaseModel):
    """A second opinion on one GPU allocation."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    status: Status = Field(description="active: real work; idle: held without use; suspicious: a person should look")
    confidence: Annotated[Number, _between(0, 1)] = Field(description="0 to 1")
    reason: Text = Field(description="why, in one or two sentences that name the numbers")
    recommendation: Text = Field(description="what the owner could do, in one sentence")
    adjusted_score: Annotated[Number, _between(0, 100)] = Field(description="utilization from 0 to 100")

    def opinion(self, *, rule_score: float | None, model: str, asked_at: float) -> Opinion:
        return Opinion(**self.model_dump(), rule_score=rule_score, model=model, asked_at=asked_at)


class OpinionCache:
    """Opinions by the fingerprint of their case; the least recently used is dropped first. Size 0 keeps nothing.

    Safe to use from several threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._opinions: OrderedDict[str, Opinion] = OrderedDict()

    def __len__(self) -> int:
        return len(self._opinions)

    def find(self, fingerprint: str) -> Opinion | None:
        with self._lock:
            opinion = self._opinions.get(fingerprint)
            if opinion is not None:
                self._opinions.move_to_end(fingerprint)
            return opinion

    def add(self, fingerprint: str, opinion: Opinion) -> None:
        with self._lock:
            self._opinions[fingerprint] = opinion
            self._opinions.move_to_end(fingerprint)
            if len(self._opinions) > self._size:
                self._opinions.popitem(last=False)
