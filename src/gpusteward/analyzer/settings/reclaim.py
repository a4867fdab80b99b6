"""`reclaim.*`: whether idle GPUs are given back, by which policy, and what is never touched."""

import re
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from gpusteward.analyzer.setting_values import NO_SECRET, SECTION, Secret, SecretFile, read_secret, split_list
from gpusteward.core.settings import InvalidSettingError

ReclaimMode = Literal["off", "observe", "enforce"]

PROTECTED_NAMESPACES = (
    *("kube-*", "openshift", "openshift-*"),
    *("gpu-operator", "nvidia-*", "node-feature-discovery", "hami-system"),
    *("kueue-system", "volcano-system", "kubeflow", "kserve", "knative-*", "istio-system", "kuberay-*"),
    *("cert-manager", "monitoring", "argocd", "flux-system", "keda", "gpusteward", "gpusteward-*"),
)
"""Namespaces of the cluster and of the controllers that GPU workloads depend on."""
LEAST_KEY_LENGTH = 16
_PATTERN = re.compile(r"[a-z0-9*?]([a-z0-9*?-]{0,61}[a-z0-9*?])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _check_pattern(pattern: str) -> str:
    """Only `*` and `?` have a meaning beyond the letters of a namespace."""
    if not _PATTERN.fullmatch(pattern):
        raise InvalidSettingError(
            "namespaces and clusters: write names, or patterns with `*` and `?`, such as vision-*"
        )
    return pattern


def _check_name(name: str) -> str:
    if not _NAMESPACE.fullmatch(name):
        raise InvalidSettingError("use the name of a namespace: lower-case letters, digits and hyphens")
    return name


def _check_not_empty(names: list[str] | None) -> list[str] | None:
    """A list that lost its value must not mean all namespaces."""
    if names is not None and not names:
        raise InvalidSettingError(
            "name at least one namespace, or leave the setting out: without it all namespaces count"
        )
    return names


def _check_key(key: str) -> str:
    if 0 < len(key) < LEAST_KEY_LENGTH:
        raise InvalidSettingError(
            f"the signing key of links is too short; use {LEAST_KEY_LENGTH} characters or more, "
            "as `openssl rand -hex 32` prints"
        )
    return key


class HostSettings(BaseModel):
    """From when on what the pods of a workload do on their hosts is work: then nothing is warned of or done. Means over
    the last 10 minutes, all pods that would stop together."""

    model_config = SECTION

    # The three numbers are chosen, not measured: far above what a pod does that only waits (scrapes, probes,
    # heartbeats, the socket of an open notebook), and far below loading data or computing on cores.
    cpu_cores: float = Field(
        default=1.0,
        gt=0,
        le=100_000,
        description="From so many CPU cores on, used by all pods of a workload together on average over 10 minutes, it "
        "is neither warned about nor suspended.",
    )
    disk_bytes_per_second: float = Field(
        default=1e6, gt=0, le=1e15, description="Likewise: bytes read from and written to disks, per second."
    )
    network_bytes_per_second: float = Field(
        default=1e6, gt=0, le=1e15, description="Likewise: bytes received and sent, per second."
    )
    seconds: ClassVar[float] = 600.0
    """Long enough for one checkpoint or batch of data in ten minutes, short enough that what has ended is over."""


class ReclaimSettings(BaseModel):
    """Giving idle GPUs back: off, only planned, or done."""

    model_config = SECTION

    mode: ReclaimMode = Field(
        default="off",
        description="off: nothing is planned. observe: plans and server-side dry runs. enforce: acts; needs access to "
        "Kubernetes and the ledger.",
    )
    policy_file: Path | None = Field(
        default=None,
        description="YAML file with the policies; reloaded when it changes. While there is none that can be used, "
        "nothing new is warned of or done.",
    )
    namespaces: Annotated[
        list[Annotated[str, AfterValidator(_check_name)]] | None,  # no patterns: the chart gives a Role in each
        BeforeValidator(split_list),
        AfterValidator(_check_not_empty),
    ] = Field(
        default=None,
        description="The only namespaces where anything is suspended, scaled or evicted; elsewhere a notice at most. "
        "Not set: all but the protected ones. Restoring is not limited.",
    )
    protected_namespaces: Annotated[
        list[Annotated[str, AfterValidator(_check_pattern)]], BeforeValidator(split_list)
    ] = Field(
        default_factory=lambda: list(PROTECTED_NAMESPACES),
        description="Namespaces, or patterns such as `kube-*`, in which nothing is ever touched. The analyzer's own is "
        "always protected.",
    )
    lease: ClassVar[str] = "gpusteward-reclaim"
    """Name of the Lease whose holder acts. Analyzers in one namespace must share it: with two names, two would act."""
    namespace: Annotated[str, AfterValidator(lambda name: name and _check_name(name))] = Field(
        default="",
        description="Namespace of the Lease and of the annotation that switches reclaim off; empty: that of the "
        "analyzer's pod. Needed where the analyzer runs outside of the cluster.",
    )
    cool_down_minutes: float = Field(
        default=240, ge=0, le=525_600, description="How long a workload is left alone after it was restored."
    )
    regret_minutes: ClassVar[float] = 30
    """A workload that is needed again within this time after its GPUs were given back counts as regretted."""
    host: HostSettings = Field(default_factory=HostSettings)
    signing_key: Secret = Field(
        default=NO_SECRET,
        description="Key that signs the links in notices (snooze), at least 16 characters. Empty: a new one at every "
        "start, so that older links and those of other replicas are refused. A file is read at the start.",
    )

    @model_validator(mode="after")
    def _check_signing_key(self) -> Self:
        if not isinstance(self.signing_key, SecretFile):
            _check_key(self.signing_key.get_secret_value())
        return self

    @property
    def is_on(self) -> bool:
        return self.mode != "off"

    def is_left_out(self, namespace: str) -> bool:
        """Whether `namespaces` is set and does not have this one."""
        return self.namespaces is not None and namespace not in self.namespaces

    def is_protected(self, namespace: str) -> bool:
        """Whether the settings protect this namespace."""
        return _compile(tuple(self.protected_namespaces)).match(namespace) is not None

    def read_signing_key(self) -> str:
        """The key, empty when there is none. Raises OSError when its file cannot be read, InvalidSettingError when it
        is too short."""
        return _check_key(read_secret(self.signing_key))


@lru_cache(maxsize=8)
def _compile(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One for all: thousands of namespaces are compared in every cycle."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)")
