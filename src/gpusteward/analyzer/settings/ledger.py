"""Settings of the ledger: its database, retention, and the buffer while the database is unavailable. Settings of
reports."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, Field, SecretStr, model_validator

from gpusteward.analyzer.setting_values import SECTION
from gpusteward.core.node.containers import LABEL_PATTERN, USER_LABELS, normalize_label
from gpusteward.core.settings import InvalidSettingError

_URL = re.compile(r"sqlite:///\S.*|(?:postgres|postgresql|postgresql\+psycopg)://\S+")
FILE_NAME = "gpusteward.db"
MAX_LABELS = 16


def check_database_url(secret: SecretStr) -> SecretStr:
    """Empty means not set. The URL is never repeated in an error: it may contain a password."""
    text = secret.get_secret_value().strip()
    if text and not _URL.fullmatch(text):
        raise InvalidSettingError("write sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    return SecretStr(text)


LabelName = Annotated[str, Field(pattern=LABEL_PATTERN)]


def check_labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Labels that have the same name in Prometheus cannot be told apart."""
    if len({normalize_label(label) for label in labels}) < len(labels):
        raise ValueError("two labels have the same name in Prometheus")
    return labels


class ReportSettings(BaseModel):
    """Reports."""

    model_config = SECTION

    teams: dict[str, str] = Field(
        default_factory=dict,
        description="The team of each namespace, by its name or by a pattern such as `vision-*`. A name comes before "
        "patterns; of several patterns that match, the first is used.",
    )


class LedgerSettings(BaseModel):
    """The ledger."""

    model_config = SECTION

    enabled: bool = Field(default=True, description="Record GPU-hours; without the ledger there are no reports.")
    url: Annotated[SecretStr, AfterValidator(check_database_url)] = Field(
        default=SecretStr(""),
        description="The database: sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE; "
        f"empty: the SQLite file {FILE_NAME} in ledger.directory.",
    )
    directory: Path | None = Field(
        default=None,
        description="Folder of the SQLite file; default: gpusteward in $XDG_DATA_HOME, or in ~/.local/share.",
    )
    hourly_days: int = Field(default=35, ge=1, le=3660, description="Retention of hourly rows, in days.")
    daily_days: int = Field(
        default=400, ge=1, le=36600, description="Retention of daily rows and of everything else, in days."
    )
    buffer_megabytes: ClassVar[int] = 64
    """Memory for cycles that are buffered while the database is unavailable: more than twenty of 50,000 allocations
    (2.7 MB each), an eighth of the 512 MiB that the analyzer takes without a limit."""
    lease_seconds: ClassVar[float] = 15
    """Of several analyzers on one PostgreSQL one writes. When it no longer responds, another one takes over after this
    time, as with the leases of Kubernetes' own controllers."""
    user_labels: tuple[str, ...] = Field(
        default=USER_LABELS,
        description="Pod labels with the user, if the agent does not report one; the first one that a pod has is used.",
    )

    labels: Annotated[tuple[LabelName, ...], AfterValidator(check_labels)] = Field(
        default=(),
        max_length=MAX_LABELS,
        description=f"Pod labels to record for reports by `label:KEY`, such as `team` or `cost-center`; at most "
        f"{MAX_LABELS}. The agent or dcgm-exporter must export them as labels of its metrics.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.daily_days < self.hourly_days:
            raise InvalidSettingError("daily_days must not be less than hourly_days")
        return self

    @property
    def pod_labels(self) -> tuple[str, ...]:
        """All labels of pods that are read."""
        return (*self.labels, *self.user_labels) if self.enabled else ()

    def locate(self, environ: Mapping[str, str] = os.environ) -> str:
        """The URL of the database. It may contain a password."""
        url = self.url.get_secret_value()
        if url:
            return re.sub(r"^(?:postgres|postgresql)://", "postgresql+psycopg://", url)
        data, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME") or "/"
        share = Path(data) if data.startswith("/") else Path(home) / ".local" / "share"
        return f"sqlite:///{quote(str((self.directory or share / 'gpusteward') / FILE_NAME))}"
