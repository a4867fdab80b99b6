"""Cases and settings for the tests of explain."""

from typing import Any

from gpusteward.analyzer.explain.prompt_cases import Case
from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.core.verdicts import Activity, Signature, State
from tests.constants import make_settings

NOW = 1_800_000_000.0
KEY = "sk-a-very-secret-key"


def parked(key: str = "ml/trainer", **changes: Any) -> Case:
    given: dict[str, Any] = {
        "key": key,
        "state": State.IDLE,
        "activity": Activity.IDLE,
        "signature": Signature.PARKED,
        "score": 18.0,
        "evidence": {"core_ratio_mean": 0.0, "core_ratio_peak": 0.0, "memory_used_bytes_mean": 3.0e10},
        "names": {"namespace": "ml", "pod": key.rpartition("/")[2]},
        "reasons": ("no work in 10 minutes",),
        "idle_seconds": 3600.0,
    }
    return Case(**(given | changes))


def several(count: int) -> list[Case]:
    return [parked(f"ml/trainer-{number}") for number in range(count)]


def ai(url: str, **changes: Any) -> AiSettings:
    given = {
        "enabled": True,
        "api_url": url,
        "api_key": KEY,
        "language": "en",
        "retry_times": 3,
        "retry_delay": 0,
        "timeout": 20,
        "cycle_timeout": 40,
    }
    return make_settings(AiSettings, **(given | changes))
