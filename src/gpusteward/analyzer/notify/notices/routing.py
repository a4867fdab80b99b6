"""Which channels receive notices about a namespace."""

from collections.abc import Mapping

from gpusteward.analyzer.notify.notices.formatting import safe_label
from gpusteward.analyzer.notify.outbox.records import channel_target
from gpusteward.analyzer.settings.notify import NotifySettings, split_names, urls_of
from gpusteward.analyzer.sources.owners.owner_resolver import NOTIFY_ANNOTATION
from gpusteward.logs import Log

log = Log(__name__)

_MAX_WARNINGS = 1000


class ChannelRouter:
    """The channel named by the pod's annotation, else those of its namespace in the settings, else the default ones.

    An annotation can name a channel of the settings. Any other value is ignored, so no tenant can choose an address.
    """

    def __init__(self, settings: NotifySettings) -> None:
        self._by_namespace: Mapping[str, tuple[str, ...]] = {
            namespace: tuple(split_names(names)) for namespace, names in settings.namespaces.items()
        }
        named = {name for names in self._by_namespace.values() for name in names}
        self.default = tuple(settings.default) or tuple(name for name in settings.channels if name not in named)
        self._addresses = {name: len(urls_of(secret)) for name, secret in settings.channels.items()}
        self._warned: set[tuple[str, str]] = set()

    def find(self, namespace: str, *, annotation: str = "") -> tuple[str, ...]:
        """Names of channels."""
        if annotation in self._addresses:
            return (annotation,)
        if annotation:
            self._warn(namespace, annotation)
        return self._by_namespace.get(namespace) or self.default

    def namespaces_by_channel(self) -> Mapping[str, tuple[str, ...]]:
        """The namespaces of each channel; empty: all namespaces."""
        channels: dict[str, tuple[str, ...]] = {}
        for namespace, names in self._by_namespace.items():
            for name in names:
                channels[name] = (*channels.get(name, ()), namespace)
        return channels | dict.fromkeys(self.default, ())

    def targets(self, channel: str) -> list[str]:
        """One per address of the channel."""
        return [channel_target(channel, number) for number in range(self._addresses.get(channel, 0))]

    def _warn(self, namespace: str, annotation: str) -> None:
        """Once per value and in total bounded: a tenant must not be able to fill the log."""
        if (namespace, annotation) in self._warned or len(self._warned) >= _MAX_WARNINGS:
            return
        self._warned.add((namespace, annotation))
        value = safe_label(annotation, max_length=63)
        log.warning("channel_unknown", annotation=NOTIFY_ANNOTATION, namespace=namespace, value=value)
