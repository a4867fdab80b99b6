"""A finding: how something stands, and how to mend it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.cli.languages import Language, Said

NOTHING = Said("", "")


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"  # works, but less well than it could
    FAIL = "fail"  # does not work
    SKIP = "skip"  # means nothing on this machine, or was not asked for


STATUS_WORDS: Mapping[str, Said] = {
    Status.OK: Said("ok", "正常"),
    Status.WARN: Said("warn", "警告"),
    Status.FAIL: Said("fail", "失败"),
    Status.SKIP: Said("skip", "跳过"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    check: str
    status: Status
    what: Said
    mend: Said = NOTHING
    facts: Mapping[str, object] = field(default_factory=dict)

    def tell(self, language: Language) -> dict[str, str]:
        return {
            "check": self.check,
            "status": self.status.value,
            "finding": self.what.to(language, **self.facts),
            "mend": self.mend.to(language, **self.facts),
        }
