"""The result of a check: status, text, and how to fix it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.core.messages import Language, Message

NO_FIX = Message("", "")


class Status(StrEnum):
    """Whether a check succeeded."""

    OK = "ok"
    WARN = "warn"  # works with limitations
    FAIL = "fail"  # does not work
    SKIP = "skip"  # does not apply to this machine, or was not requested


STATUS_LABELS: Mapping[str, Message] = {
    Status.OK: Message("ok", "正常"),
    Status.WARN: Message("warn", "警告"),
    Status.FAIL: Message("fail", "失败"),
    Status.SKIP: Message("skip", "跳过"),
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One result of a check."""

    check: str
    status: Status
    text: Message
    fix: Message = NO_FIX
    fields: Mapping[str, object] = field(default_factory=dict)

    def describe(self, language: Language) -> dict[str, str]:
        return {
            "check": self.check,
            "status": self.status.value,
            "finding": self.text.text(language, **self.fields),
            "mend": self.fix.text(language, **self.fields),
        }
