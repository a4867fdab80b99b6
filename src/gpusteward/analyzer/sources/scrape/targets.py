"""Which targets to scrape: a list in the settings, a file, or the pods of the cluster. A list that cannot be read keeps
its last targets.

A target may report one node only, its own. Lines about other nodes are refused, because whoever runs one exporter could
otherwise make the GPUs of every node look idle. The API server knows the node of a pod. A target of a file with the
label `node` is on that node, whatever its page calls it. Any other target has the node that it names first; that must
not be the host name of another target. A target that reports several nodes by design, such as HAMi's scheduler, is
named in `scrape.any_node_targets`. A target that reports the GPU of another node under its own name makes that GPU
unknown: two nodes report it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec
import yaml

from gpusteward.analyzer.sources.scrape.settings import DEFAULT_PATH, ScrapeSettings, parse_target
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Message
from gpusteward.http.urls import DEFAULT_PORTS, HttpUrl
from gpusteward.kubernetes.api import ApiServer, make_path
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors as messages
from gpusteward.watched_file import WatchedFile

log = Log(__name__)

FILE_CHECK_SECONDS = 5.0
POD_LIST_SECONDS = 30.0


@dataclass(frozen=True)
class Target:
    """One exporter."""

    url: HttpUrl
    labels: Mapping[str, str] = field(default_factory=dict)  # added to its series that have none of that name
    fixed_labels: Mapping[str, str] = field(default_factory=dict)  # replace those of its series
    node: str = ""  # the only node it may report; empty: not known
    pod: str = ""  # its own name, if it is a pod that the API server listed
    namespace: str = ""  # of that pod
    may_report_any_node: bool = False
    gets_credentials: bool = True

    @property
    def name(self) -> str:
        """The URL, always with its port."""
        return f"{self.url.scheme}://{self.url.address}{self.url.path}"


class TargetList(Protocol):
    origin: str  # where the targets come from, for people
    refresh_seconds: float
    warning: str  # about targets of this list that were left out

    def read(self) -> tuple[Target, ...] | None:
        """The targets as they are now; None if they have not changed. Raises SourceError, ConfigurationError."""


class TargetRegistry:
    """The targets of all lists, and what is wrong with each list."""

    def __init__(self, lists: Iterable[TargetList], *, limit: int) -> None:
        self._lists = tuple(lists)
        self._limit = limit
        self._targets: dict[str, tuple[Target, ...]] = {}  # by origin
        self._refresh_at: dict[str, float] = {}
        self.errors: dict[str, str] = {}  # by origin
        self.omitted = 0  # targets beyond the limit

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(each.origin for each in self._lists)

    def refresh(self, now: float) -> Mapping[str, Target]:
        """All targets by name; lists that are due are read again."""
        for each in self._lists:
            if now >= self._refresh_at.get(each.origin, 0.0):
                self._refresh_at[each.origin] = now + each.refresh_seconds
                self._read(each)
        found = {target.name: target for targets in self._targets.values() for target in targets}
        self.omitted = max(len(found) - self._limit, 0)
        return dict(list(found.items())[: self._limit])

    def _read(self, targets: TargetList) -> None:
        try:
            found = targets.read()
        except (SourceError, ConfigurationError) as error:
            self._set_error(targets.origin, str(error))
            return
        # An internal error costs this refresh: the last targets are still scraped.
        except Exception as error:  # noqa: BLE001
            self._set_error(targets.origin, f"unexpected {type(error).__name__}: {error}")
            return
        if found is not None:
            self._targets[targets.origin] = found
            log.info("targets_found", origin=targets.origin, targets=len(found))
        if targets.warning:
            self._set_error(targets.origin, targets.warning)
        else:
            self.errors.pop(targets.origin, None)

    def _set_error(self, origin: str, reason: str) -> None:
        if self.errors.get(origin) != reason:
            kept = len(self._targets.get(origin, ()))
            log.warning("targets_unreadable", origin=origin, reason=reason, kept=f"{kept} targets")
        self.errors[origin] = reason


def make_target_lists(
    settings: ScrapeSettings,
    api: ApiServer | None,
    *,
    own_namespace: str = "",
    labels: Mapping[str, str] | None = None,
) -> list[TargetList]:
    """Pods are used only without a list and a file. `labels`: of all pods. Raises ConfigurationError."""
    lists: list[TargetList] = []
    if settings.targets:
        lists.append(StaticTargets(settings))
    if settings.targets_file is not None:
        lists.append(FileTargets(settings.targets_file, settings))
    if not lists and api is not None:
        lists.append(PodTargets(api, settings, own_namespace=own_namespace, labels=labels))
    return lists


class StaticTargets:
    """Targets in the settings."""

    origin = "scrape.targets"
    refresh_seconds = float("inf")
    warning = ""

    def __init__(self, settings: ScrapeSettings) -> None:
        """Raises ConfigurationError."""
        any_node = _find_any_node_targets(settings)
        urls = [parse_target(text, scheme=settings.scheme, port=settings.port) for text in settings.targets]
        self._targets = tuple(Target(url, may_report_any_node=url in any_node) for url in urls)

    def read(self) -> tuple[Target, ...]:
        return self._targets


def _find_any_node_targets(settings: ScrapeSettings) -> frozenset[HttpUrl]:
    texts = settings.any_node_targets
    return frozenset(parse_target(text, scheme=settings.scheme, port=settings.port) for text in texts)


class _TargetGroup(msgspec.Struct):
    targets: list[str]
    labels: dict[str, str] = {}


class FileTargets:
    """Targets in a file of Prometheus' file_sd format, JSON or YAML; read again when it changes."""

    origin = "scrape.targets_file"
    refresh_seconds = FILE_CHECK_SECONDS

    def __init__(self, path: Path, settings: ScrapeSettings) -> None:
        self._file = WatchedFile(path, setting=self.origin)
        self._settings = settings
        self._any_node = _find_any_node_targets(settings)
        self._error: Message | None = None  # not the error itself: its traceback would grow each time it is raised
        self.warning = ""

    def read(self) -> tuple[Target, ...] | None:
        """An invalid address leaves out only itself. Raises ConfigurationError as long as the file is invalid."""
        if self._file.has_changed():
            try:
                targets = self._parse(_decode_groups(self._file.read(), self._file.path))
            except ConfigurationError as error:
                self._error = error.as_message()
            else:
                self._error = None
                return targets
        if self._error is not None:
            raise ConfigurationError(self._error)
        return None

    def _parse(self, groups: list[_TargetGroup]) -> tuple[Target, ...]:
        """Raises ConfigurationError if no address is valid."""
        entries = [(text, group.labels) for group in groups for text in group.targets]
        targets: list[Target] = []
        errors: list[Message] = []  # an error would refer to this frame, and this frame to the error
        for text, labels in entries:
            scheme, path = labels.get("__scheme__", self._settings.scheme), labels.get("__metrics_path__", DEFAULT_PATH)
            if scheme not in DEFAULT_PORTS:
                errors.append(messages.TARGET_SCHEME.fill(scheme=scheme[:20]))
                continue
            try:
                url = parse_target(text, scheme=scheme, port=self._settings.port, path=path)
            except ConfigurationError as error:
                errors.append(error.as_message())
                continue
            own = {name: value for name, value in labels.items() if not name.startswith("__")}
            targets.append(Target(url, own, node=own.get("node", ""), may_report_any_node=url in self._any_node))
        if errors and not targets:
            raise ConfigurationError(errors[0])
        self.warning = f"{len(errors)} of {len(entries)} targets left out: {errors[0]}" if errors else ""
        return tuple(targets)


def _decode_groups(text: str, path: Path) -> list[_TargetGroup]:
    """Raises ConfigurationError."""
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(text, type=list[_TargetGroup])
        return msgspec.convert(yaml.safe_load(text) or [], type=list[_TargetGroup])
    except (msgspec.MsgspecError, yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigurationError(messages.TARGETS_FILE_INVALID, path=path, reason=reason) from None


_MOST_PODS = 50_000
_PORT_NAME = "metrics"
_MAX_PORT = 65535


class _ContainerPort(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _PodContainer(msgspec.Struct):
    ports: list[_ContainerPort] | None = None


class _ListedPodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_PodContainer] | None = None


class _ListedPodStatus(msgspec.Struct):
    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")


class _ListedPodMetadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _ListedPod(msgspec.Struct):
    metadata: _ListedPodMetadata
    spec: _ListedPodSpec
    status: _ListedPodStatus


ALL_NAMESPACES = "*"


class PodTargets:
    """The running pods that match `scrape.selector`, in the namespaces that the settings name.

    Whoever may create pods there can report GPUs and receives the credentials, so other namespaces are not searched.
    """

    origin = "pods of the cluster"
    refresh_seconds = POD_LIST_SECONDS
    warning = ""

    def __init__(
        self,
        api: ApiServer,
        settings: ScrapeSettings,
        *,
        own_namespace: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`labels`: of the cluster, and of all its pods."""
        self._api = api
        self._settings = settings
        self._labels = {name: value for name, value in (labels or {}).items() if value}
        self._namespaces = list(dict.fromkeys((settings.namespace or own_namespace, *settings.namespaces)))

    def read(self) -> tuple[Target, ...]:
        """Raises SourceError."""
        if not self._namespaces[0]:
            raise SourceError(messages.NAMESPACE_UNKNOWN)
        listed = [ALL_NAMESPACES] if ALL_NAMESPACES in self._namespaces else self._namespaces
        targets: list[Target] = []
        for namespace in listed:
            pods, left = make_path("v1", "Pod", "" if namespace == ALL_NAMESPACES else namespace), _MOST_PODS
            for page in self._api.read_pages(f"{pods}?labelSelector={quote(self._settings.selector)}", _ListedPod):
                left -= len(page)
                if left < 0:
                    raise SourceError(messages.TOO_MANY_PODS, limit=_MOST_PODS)
                running = (pod for pod in page if pod.status.phase == "Running" and pod.status.pod_ip)
                targets += map(self._make_target, running)
        return tuple(targets)

    def _make_target(self, pod: _ListedPod) -> Target:
        ports = (port for container in pod.spec.containers or () for port in container.ports or ())
        named = (port.container_port for port in ports if port.name == _PORT_NAME)
        port = next((number for number in named if 0 < number <= _MAX_PORT), self._settings.port)
        node = pod.spec.node_name or ""
        return Target(
            HttpUrl(self._settings.scheme, pod.status.pod_ip or "", port, DEFAULT_PATH),
            {"node": node, **self._labels} if node else self._labels,
            fixed_labels=self._labels,
            node=node,
            pod=pod.metadata.name,
            namespace=pod.metadata.namespace,
            gets_credentials=pod.metadata.namespace in self._namespaces and port == self._settings.port,
        )


class ReportedNode:
    """The node of one target."""

    def __init__(
        self,
        node: str = "",
        *,
        pod: str = "",
        host: str = "",
        hosts: Collection[str] = (),
        is_renamed: bool = False,
        may_be_any: bool = False,
    ) -> None:
        """`pod`: dcgm-exporter writes the name of its own pod where it does not know the node. `host`: the host name of
        the target, `hosts`: those of all targets. `is_renamed`: `node` replaces whatever the target calls it."""
        self._known = node
        self._pod = pod
        self._host = host
        self._hosts = hosts
        self._is_renamed = is_renamed
        self._may_be_any = may_be_any
        self.node = node  # empty: not known yet

    @property
    def is_only(self) -> bool:
        """Whether the target may report one node only."""
        return not self._may_be_any

    def admit(self, said: str) -> str | None:
        """The node to use for a line that names this one; None if the target may not speak for it."""
        if self._may_be_any:
            return said
        if not said or self._is_renamed:
            return self._known
        if not self.node and not self._is_of_another_target(said):
            self.node = said
        return self.node if self.admits(said) else None

    def admits(self, said: str) -> bool:
        """Whether a line with this node label may be used."""
        if self._may_be_any or self._is_renamed:
            return True
        return said in ("", self.node, self._pod) or _is_same_host(said, self.node)

    def forget(self) -> None:
        """The target has nothing left of the node that it named: it may have been renamed."""
        self.node = self._known

    def _is_of_another_target(self, said: str) -> bool:
        is_host = said in self._hosts or said.partition(".")[0] in self._hosts
        return is_host and not _is_same_host(said, self._host)


def _is_same_host(first: str, second: str) -> bool:
    """A host name with and without its domain. The parts of an IP address are not names."""
    if first == second:
        return True
    short, long = sorted((first, second), key=len)
    return bool(short) and not short.isdecimal() and "." not in short and long.startswith(f"{short}.")
