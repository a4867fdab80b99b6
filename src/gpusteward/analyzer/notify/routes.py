"""Which channels are told about a workload (pure): its annotation, else its namespace's, else the default ones."""

from collections.abc import Mapping

from gpusteward.analyzer.notify.notices.formatting import bare
from gpusteward.analyzer.settings.notify import NotifySettings, split_names, urls_of
from gpusteward.analyzer.sources.owners.owner_resolver import NOTIFY_ANNOTATION
from gpusteward.logs import Log

log = Log(__name__)

_COMPLAINTS = 1000


class Routes:
    """A tenant may choose among the channels of the settings by their names; anything else it writes is ignored."""

    def __init__(self, settings: NotifySettings) -> None:
        self._by_namespace: Mapping[str, tuple[str, ...]] = {
            namespace: tuple(split_names(names)) for namespace, names in settings.namespaces.items()
        }
        named = {name for names in self._by_namespace.values() for name in names}
        self.default = tuple(settings.default) or tuple(name for name in settings.channels if name not in named)
        self._addresses = {name: len(urls_of(secret)) for name, secret in settings.channels.items()}
        self._complained: set[tuple[str, str]] = set()

    def find(self, namespace: str, *, wish: str = "") -> tuple[str, ...]:
        """Channels by name. `wish` is the annotation."""
        if wish in self._addresses:
            return (wish,)
        if wish:
            self._complain(namespace, wish)
        return self._by_namespace.get(namespace) or self.default

    def audiences(self) -> Mapping[str, tuple[str, ...]]:
        """Channel -> the namespaces it is told about; none named: all of them."""
        audiences: dict[str, tuple[str, ...]] = {}
        for namespace, names in self._by_namespace.items():
            for name in names:
                audiences[name] = (*audiences.get(name, ()), namespace)
        return audiences | dict.fromkeys(self.default, ())

    def count_addresses(self, channel: str) -> int:
        return self._addresses.get(channel, 0)

    def _complain(self, namespace: str, wish: str) -> None:
        """Once for each: a tenant must not fill the log either."""
        if (namespace, wish) in self._complained or len(self._complained) >= _COMPLAINTS:
            return
        self._complained.add((namespace, wish))
        log.warning("channel_unknown", annotation=NOTIFY_ANNOTATION, namespace=namespace, value=bare(wish, longest=63))
