"""The only importer of Apprise, for every channel that is not a Feishu webhook. It takes 45 MB: loaded when needed."""

import logging
import warnings
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.outbox.records import PendingDelivery
from gpusteward.core.errors import ConfigurationError

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class AppriseSender:
    """One address of a channel."""

    host: str
    _services: Any = field(repr=False)  # an Apprise object with one service

    @classmethod
    def open(cls, name: str, url: str) -> "AppriseSender":
        """Raises ConfigurationError, without the address, which is a secret."""
        import apprise

        _silence()
        # Nothing is kept on disk, templates are not looked for in texts, redirects not followed.
        asset = apprise.AppriseAsset(storage_mode="memory", http_redirects=False, allow_templates=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its plugins import what Python deprecates: not ours to mend
            service = apprise.Apprise.instantiate(url, asset=asset)
        if service is None:
            raise ConfigurationError(
                f"notify.channels.{name}: Apprise does not understand this address; "
                "see its list of services, or give a Feishu webhook"
            )
        service.redirects = False  # also where the address asks for them
        services = apprise.Apprise(asset=asset)
        services.add(service)
        return cls(f"{urlsplit(url).scheme}:{name}", services)

    def send(self, waiting: PendingDelivery) -> None:
        from apprise import NotifyFormat

        title, _, body = waiting.body.partition("\n")
        text = {"body": body or title, "title": title, "body_format": NotifyFormat.TEXT}
        try:
            was_sent = self._services.notify(**text, interpret_escapes=False, timeout=TIMEOUT_SECONDS)
        # What a plugin raises is not known here, and costs this attempt only; its text may have the address in it.
        except Exception as error:
            raise DeliveryError(f"Apprise failed ({type(error).__name__})") from error
        if not was_sent:
            raise DeliveryError("the service did not take it; Apprise does not say why")


def _silence() -> None:
    """Its log repeats addresses and bodies."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
