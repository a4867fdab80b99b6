"""The result of a check: status, text, and how to fix it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.core.messages import format_text


class Status(StrEnum):
    """Whether a check succeeded."""

    OK = "ok"
    WARN = "warn"  # works with limitations
    FAIL = "fail"  # does not work
    SKIP = "skip"  # does not apply to this machine, or was not requested


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One result of a check; `text` and `fix` may name `fields`."""

    check: str
    status: Status
    text: str
    fix: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)

    def describe(self) -> dict[str, str]:
        return {
            "check": self.check,
            "status": self.status.value,
            "finding": format_text(self.text, self.fields),
            "mend": format_text(self.fix, self.fields),
        }


def ok(check: str, text: str, fix: str = "", /, **fields: object) -> CheckResult:
    return CheckResult(check, Status.OK, text, fix, fields)


def warn(check: str, text: str, fix: str = "", /, **fields: object) -> CheckResult:
    return CheckResult(check, Status.WARN, text, fix, fields)


def fail(check: str, text: str, fix: str = "", /, **fields: object) -> CheckResult:
    return CheckResult(check, Status.FAIL, text, fix, fields)


def skip(check: str, text: str, fix: str = "", /, **fields: object) -> CheckResult:
    return CheckResult(check, Status.SKIP, text, fix, fields)
