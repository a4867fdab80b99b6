"""A finding: how something stands, and how to mend it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.core.messages import Language, Message

NOTHING = Message("", "")


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"  # works, but less well than it could
    FAIL = "fail"  # does not work
    SKIP = "skip"  # means nothing on this machine, or was not asked for


STATUS_WORDS: Mapping[str, Message] = {
    Status.OK: Message("ok", "正常"),
    Status.WARN: Message("warn", "警告"),
    Status.FAIL: Message("fail", "失败"),
    Status.SKIP: Message("skip", "跳过"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    check: str
    status: Status
    what: Message
    mend: Message = NOTHING
    facts: Mapping[str, object] = field(default_factory=dict)

    def tell(self, language: Language) -> dict[str, str]:
        return {
            "check": self.check,
            "status": self.status.value,
            "finding": self.what.text(language, **self.facts),
            "mend": self.mend.text(language, **self.facts),
        }
