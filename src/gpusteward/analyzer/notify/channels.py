"""Target -> who sends: the control webhook, Feishu webhooks, everything else through Apprise.

Rows of the outbox name a target; what address that is, only the settings of the day say.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.http_post import host_of, post
from gpusteward.analyzer.notify.outbox.records import PendingDelivery
from gpusteward.analyzer.notify.signing import KEY_HEADER, SIGNATURE_HEADER, sign, sign_feishu
from gpusteward.analyzer.settings.notify import ControlSettings, NotifySettings, is_feishu, secrets_of, urls_of

CONTROL = "control"
NOTICE_TIMEOUT_SECONDS = 10.0


class Sender(Protocol):
    """Delivers one row."""

    @property
    def host(self) -> str:
        """Whose failures count together."""

    def send(self, waiting: PendingDelivery) -> None:
        """Raises DeliveryError."""


@dataclass(frozen=True, slots=True)
class ControlSender:
    """gpu-oour's control webhook, signed where there is a secret."""

    settings: ControlSettings = field(repr=False)
    clock: Callable[[], float] = time.time

    @property
    def host(self) -> str:
        return host_of(self.settings.api_url)

    def send(self, waiting: PendingDelivery) -> None:
        body = waiting.body.encode()
        headers = {**waiting.headers, KEY_HEADER: waiting.key}
        try:
            secret = self.settings.read_secret()
        except (OSError, UnicodeDecodeError) as error:
            raise DeliveryError("control.secret_file cannot be read") from error
        if secret:
            headers[SIGNATURE_HEADER] = sign(secret, body, key=waiting.key, at=self.clock())
        post(self.settings.api_url, body, headers=headers, timeout=self.settings.timeout)


class _FeishuAnswer(msgspec.Struct):
    code: int = 0
    StatusCode: int = 0  # as older bots answer


@dataclass(frozen=True, slots=True)
class FeishuSender:
    """A webhook of a Feishu or Lark bot: a text message, as gpu-oour's users send it, signed if it has a secret."""

    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    clock: Callable[[], float] = time.time

    @property
    def host(self) -> str:
        return host_of(self.url)

    def send(self, waiting: PendingDelivery) -> None:
        signature = sign_feishu(self.secret, at=self.clock()) if self.secret else {}
        message = msgspec.json.encode({**signature, "msg_type": "text", "content": {"text": waiting.body}})
        answer = post(self.url, message, headers={}, timeout=NOTICE_TIMEOUT_SECONDS)
        try:
            read = msgspec.json.decode(answer, type=_FeishuAnswer)
        except msgspec.DecodeError as error:
            raise DeliveryError("the answer is not Feishu's", is_refusal=True) from error
        if code := read.code or read.StatusCode:  # Feishu answers 200 to what it does not deliver
            why = _FEISHU_REASONS.get(code, "")
            raise DeliveryError(f"Feishu refused it with code {code}{why}", is_refusal=code not in _FEISHU_BUSY)


_FEISHU_BUSY = (9499, 11232)  # too many requests of this bot, of all bots
_FEISHU_REASONS = {19021: ": it checks signatures; see notify.secrets, and whether the clock here is right"}


def channel_target(name: str, number: int) -> str:
    """Each address of a channel is a target of its own: when one fails, the others are not told twice."""
    return f"channel/{name}/{number}"


def build_senders(
    control: ControlSettings, notify: NotifySettings, *, clock: Callable[[], float] = time.time
) -> Mapping[str, Sender]:
    """Everybody who can be told now. Raises ConfigurationError for a channel that nobody can deliver to."""
    senders: dict[str, Sender] = {}
    if control.enabled and control.api_url:
        senders[CONTROL] = ControlSender(control, clock)
    for name, secret in notify.channels.items():
        bots = iter(secrets_of(notify, name))
        for number, url in enumerate(urls_of(secret)):
            senders[channel_target(name, number)] = (
                FeishuSender(url, next(bots, ""), clock) if is_feishu(url) else _open_channel(name, url)
            )
    return senders


def _open_channel(name: str, url: str) -> Sender:
    from gpusteward.analyzer.notify.apprise_channel import AppriseSender

    return AppriseSender.open(name, url)
