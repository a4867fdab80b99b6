"""The result of a check: status, text, and how to fix it. In English, as errors of the command line are."""

from dataclasses import dataclass
from enum import StrEnum

CHECK_LOG = "check its log and its listen address"
NO_SCRAPES = "have it scrape the agents (or dcgm-exporter) with a ServiceMonitor or the annotation prometheus.io/scrape"
NO_VIDEO = (
    "add them to the CSV of dcgm-exporter: without them work of video engines is not seen, and idleness leads to a "
    "notice at most"
)
WINDOW_FILLS = (
    "no action needed: the window fills by itself; an allocation is not judged idle until its sample coverage is 90%"
)


class CheckStatus(StrEnum):
    """Whether a check succeeded."""

    OK = "ok"
    WARN = "warn"  # works with limitations
    FAIL = "fail"  # does not work
    SKIP = "skip"  # does not apply to this machine, or was not requested


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One result of a check. The fields are those of JSON and CSV: scripts read them."""

    check: str
    status: CheckStatus
    finding: str
    mend: str = ""


def ok(check: str, finding: str, mend: str = "") -> CheckResult:
    return CheckResult(check, CheckStatus.OK, finding, mend)


def warn(check: str, finding: str, mend: str = "") -> CheckResult:
    return CheckResult(check, CheckStatus.WARN, finding, mend)


def fail(check: str, finding: str, mend: str = "") -> CheckResult:
    return CheckResult(check, CheckStatus.FAIL, finding, mend)


def skip(check: str, finding: str, mend: str = "") -> CheckResult:
    return CheckResult(check, CheckStatus.SKIP, finding, mend)


def count(number: float, one: str, many: str = "") -> str:
    """`1 GPU`, `8 GPUs`; 0.7 minutes are `1 minute`."""
    return f"{number:.0f} {one if round(number) == 1 else many or f'{one}s'}"
