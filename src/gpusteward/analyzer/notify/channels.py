"""Senders of the current settings: the control webhook, webhooks of Feishu and Slack, and every other channel through
Apprise, which only this module imports, and only if it is needed: it takes 45 MB.

Rows of the outbox name a target; only the settings know its address.
"""

import base64
import hashlib
import hmac
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpusteward.analyzer.notify.control_webhook import ControlSender
from gpusteward.analyzer.notify.http_post import host_of, post
from gpusteward.analyzer.notify.outbox.dispatcher import Sender
from gpusteward.analyzer.notify.outbox.records import (
    CONTROL,
    DeliveryError,
    PendingDelivery,
    channel_target,
    read_buttons,
)
from gpusteward.analyzer.settings.notify import (
    ControlSettings,
    NotifySettings,
    is_feishu,
    is_slack,
    secrets_of,
    urls_of,
)
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.notices import CHANNEL_UNUSABLE

TIMEOUT_SECONDS, APPRISE_TIMEOUT_SECONDS = 10.0, 30.0
SLACK_TITLE, SLACK_TEXT, SLACK_LABEL = 150, 3000, 75
"""The longest texts that Slack accepts in a header, a section and a button."""
_FEISHU_RATE_LIMITED = (9499, 11232)  # too many requests of this bot, of all bots
_FEISHU_HINTS = {19021: ": signature check failed; check notify.secrets and the clock of the analyzer"}


def build_senders(
    control: ControlSettings, notify: NotifySettings, *, clock: Callable[[], float] = time.time
) -> Mapping[str, Sender]:
    """Target -> sender. Raises ConfigurationError for a channel that cannot be used."""
    senders: dict[str, Sender] = {}
    if control.enabled and control.api_url:
        senders[CONTROL] = ControlSender(control, clock)
    for name, secret in notify.channels.items():
        bot_secrets = iter(secrets_of(notify, name))
        for number, url in enumerate(urls_of(secret)):
            target = channel_target(name, number)
            if is_feishu(url):
                senders[target] = FeishuSender(url, next(bot_secrets, ""), clock)
            else:
                senders[target] = SlackSender(url) if is_slack(url) else AppriseSender.open(name, url)
    return senders


class _FeishuResponse(msgspec.Struct):
    code: int = 0
    StatusCode: int = 0  # of older bots


@dataclass(frozen=True, slots=True)
class FeishuSender:
    """Webhook of a Feishu or Lark bot: a text message, signed if the bot has a secret."""

    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    clock: Callable[[], float] = time.time

    @property
    def host(self) -> str:
        return host_of(self.url)

    def send(self, delivery: PendingDelivery) -> None:
        signature = sign_feishu(self.secret, at=self.clock()) if self.secret else {}
        message = msgspec.json.encode({**signature, **_make_feishu_message(delivery)})
        response = post(self.url, message, headers={}, timeout=TIMEOUT_SECONDS)
        try:
            decoded = msgspec.json.decode(response, type=_FeishuResponse)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DeliveryError("unexpected response; is this a Feishu webhook?", is_refusal=True) from error
        if code := decoded.code or decoded.StatusCode:  # Feishu responds 200 to messages that it does not deliver
            hint = _FEISHU_HINTS.get(code, "")
            raise DeliveryError(
                f"rejected by Feishu with code {code}{hint}", is_refusal=code not in _FEISHU_RATE_LIMITED
            )


def _make_feishu_message(delivery: PendingDelivery) -> dict[str, Any]:
    """A text, as gpu-oour sends it; with buttons a card."""
    buttons = read_buttons(delivery.headers)
    if not buttons:
        return {"msg_type": "text", "content": {"text": delivery.body}}
    title, _, body = delivery.body.partition("\n")
    actions = [{"tag": "button", "text": _plain(each.label), "type": "default", "url": each.url} for each in buttons]
    card = {
        "config": {"wide_screen_mode": True},
        "header": {"title": _plain(title), "template": "orange"},
        "elements": [{"tag": "div", "text": _plain(body)}, {"tag": "action", "actions": actions}],
    }
    return {"msg_type": "interactive", "card": card}


def _plain(text: str) -> dict[str, str]:
    """Names come from tenants: no markup."""
    return {"tag": "plain_text", "content": text}


@dataclass(frozen=True, slots=True)
class SlackSender:
    """Incoming webhook of Slack: a message of blocks, with buttons where the notice has some."""

    url: str = field(repr=False)

    @property
    def host(self) -> str:
        return host_of(self.url)

    def send(self, delivery: PendingDelivery) -> None:
        """The text beside the blocks is what notifications show."""
        title, _, body = delivery.body.partition("\n")
        blocks: list[dict[str, Any]] = [{"type": "header", "text": _slack_text(title, SLACK_TITLE)}]
        if body:
            blocks.append({"type": "section", "text": _slack_text(body, SLACK_TEXT)})
        buttons = [
            {"type": "button", "text": _slack_text(each.label, SLACK_LABEL), "url": each.url}
            for each in read_buttons(delivery.headers)
        ]
        if buttons:
            blocks.append({"type": "actions", "elements": buttons})
        message = {"text": _escape_slack(title), "blocks": blocks}
        post(self.url, msgspec.json.encode(message), headers={}, timeout=TIMEOUT_SECONDS)


def _slack_text(text: str, length: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": text if len(text) <= length else f"{text[: length - 1]}…", "emoji": False}


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def sign_feishu(secret: str, *, at: float) -> dict[str, str]:
    """The fields that a Feishu bot with signature check expects in the message. They are valid for an hour.

    In Feishu's scheme time and secret are the HMAC key and the signed text is empty: it authenticates the sender, not
    the message.
    """
    seconds = str(int(at))
    digest = hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()
    return {"timestamp": seconds, "sign": base64.b64encode(digest).decode()}


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
            was_sent = self._services.notify(**text, interpret_escapes=False, timeout=APPRISE_TIMEOUT_SECONDS)
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
