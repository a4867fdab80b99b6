"""Channels that are not Feishu webhooks. The only importer of Apprise, which takes 45 MB: imported only if needed."""

import logging
import warnings
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.outbox.records import PendingDelivery, read_buttons
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.notices import CHANNEL_UNUSABLE

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

        _disable_log()
        # Nothing is stored on disk, texts are not treated as templates, redirects are not followed.
        asset = apprise.AppriseAsset(storage_mode="memory", http_redirects=False, allow_templates=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Apprise's plugins import deprecated modules
            service = apprise.Apprise.instantiate(url, asset=asset)
        if service is None:
            raise ConfigurationError(CHANNEL_UNUSABLE, channel=name)
        service.redirects = False  # even if the URL enables them
        services = apprise.Apprise(asset=asset)
        services.add(service)
        return cls(f"{urlsplit(url).scheme}:{name}", services)

    def send(self, delivery: PendingDelivery) -> None:
        from apprise import NotifyFormat

        title, _, body = delivery.body.partition("\n")
        body = "\n".join([body, *(f"{each.label}: {each.url}" for each in read_buttons(delivery.headers))]).strip()
        text = {"body": body or title, "title": title, "body_format": NotifyFormat.TEXT}
        try:
            was_sent = self._services.notify(**text, interpret_escapes=False, timeout=TIMEOUT_SECONDS)
        # Plugins may raise anything; it costs this attempt only. The text of the error may contain the address.
        except Exception as error:
            raise DeliveryError(f"Apprise failed ({type(error).__name__})") from error
        if not was_sent:
            raise DeliveryError("not accepted by the service (Apprise gives no reason)")


def _disable_log() -> None:
    """Apprise logs addresses and bodies."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
