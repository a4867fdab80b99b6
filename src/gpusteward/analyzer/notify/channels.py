"""Senders of the current settings: the control webhook, Feishu webhooks, and every other channel through Apprise.

Rows of the outbox name a target; only the settings know its address.
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from gpusteward.analyzer.notify.control_webhook import ControlSender
from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.http_post import host_of, post
from gpusteward.analyzer.notify.outbox.dispatcher import Sender
from gpusteward.analyzer.notify.outbox.records import CONTROL, PendingDelivery, channel_target
from gpusteward.analyzer.settings.notify import ControlSettings, NotifySettings, is_feishu, secrets_of, urls_of

TIMEOUT_SECONDS = 10.0
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
            senders[channel_target(name, number)] = (
                FeishuSender(url, next(bot_secrets, ""), clock) if is_feishu(url) else _open_apprise(name, url)
            )
    return senders


def _open_apprise(name: str, url: str) -> Sender:
    from gpusteward.analyzer.notify.apprise_channel import AppriseSender  # 45 MB

    return AppriseSender.open(name, url)


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
        message = msgspec.json.encode({**signature, "msg_type": "text", "content": {"text": delivery.body}})
        response = post(self.url, message, headers={}, timeout=TIMEOUT_SECONDS)
        try:
            decoded = msgspec.json.decode(response, type=_FeishuResponse)
        except msgspec.DecodeError as error:
            raise DeliveryError("unexpected response; is this a Feishu webhook?", is_refusal=True) from error
        if code := decoded.code or decoded.StatusCode:  # Feishu responds 200 to messages that it does not deliver
            hint = _FEISHU_HINTS.get(code, "")
            raise DeliveryError(
                f"rejected by Feishu with code {code}{hint}", is_refusal=code not in _FEISHU_RATE_LIMITED
            )


def sign_feishu(secret: str, *, at: float) -> dict[str, str]:
    """The fields that a Feishu bot with signature check expects in the message. They are valid for an hour.

    In Feishu's scheme time and secret are the HMAC key and the signed text is empty: it authenticates the sender, not
    the message.
    """
    seconds = str(int(at))
    digest = hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()
    return {"timestamp": seconds, "sign": base64.b64encode(digest).decode()}
