"""Links in notices: signed ones that snooze a workload, and those to its page in the web UI.

A snooze link names the workload and when the link ends, signed with HMAC-SHA256 by `reclaim.signing_key`. Whoever has
it can make gpusteward more careful with this workload, and nothing else: opening it changes nothing, the page behind it
asks for a confirmation, and the policy of the workload limits how long the snooze may be.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from gpusteward.analyzer.notify.outbox.records import Button
from gpusteward.analyzer.settings.reclaim import ReclaimSettings
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.settings import InvalidSettingError
from gpusteward.messages import notices as messages

SNOOZE_PATH = "/snooze"
SNOOZE_HOURS = (4, 8, 24)
LINK_SECONDS = 48 * 3600.0
"""Longer than the time between a warning and its action under the built-in policies, and than a night."""
_PURPOSE = b"gpusteward snooze link\0"
LONGEST_TOKEN = 2048


class InvalidLinkError(Exception):
    """The link was not signed here, or was changed."""


class ExpiredLinkError(Exception):
    """The link was signed here, and its time is over."""


class SnoozeLink(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What a link is about."""

    kind: str
    namespace: str
    name: str
    cluster: str
    channel: str  # to which it was sent
    language: Language
    expires_at: int  # unix seconds

    @property
    def workload(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name, self.cluster)


@dataclass(frozen=True, slots=True)
class LinkSigner:
    """Signs links and checks them."""

    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @classmethod
    def open(cls, settings: ReclaimSettings) -> "LinkSigner":
        """With the key of the settings; without one, with a new one. Raises ConfigurationError."""
        try:
            key = settings.read_signing_key()
        except OSError as error:
            raise ConfigurationError(
                f"reclaim.signing_key_file: {error.filename} cannot be read: {error.strerror}"
            ) from error
        except InvalidSettingError as error:
            raise ConfigurationError(str(error)) from error
        return cls(key.encode()) if key else cls()

    def sign(self, link: SnoozeLink) -> str:
        """The text of the link in a URL."""
        content = msgspec.json.encode(link)
        return f"{_encode(content)}.{_encode(self._digest(content))}"

    def verify(self, text: str, *, now: float) -> SnoozeLink:
        """Raises InvalidLinkError, ExpiredLinkError."""
        try:
            content, signature = (_decode(part) for part in text[:LONGEST_TOKEN].split("."))
            if not hmac.compare_digest(signature, self._digest(content)):
                raise InvalidLinkError
            link = msgspec.json.decode(content, type=SnoozeLink)
        except (ValueError, binascii.Error) as error:
            raise InvalidLinkError from error
        if now >= link.expires_at:
            raise ExpiredLinkError
        return link

    def _digest(self, content: bytes) -> bytes:
        return hmac.new(self._key, _PURPOSE + content, hashlib.sha256).digest()


def make_snooze_buttons(
    signer: LinkSigner, public_url: str, workload: WorkloadKey, *, channel: str, language: Language, now: float
) -> list[Button]:
    """One for each choice of hours."""
    expires_at = int(now + LINK_SECONDS)
    kind, namespace, name, cluster = workload
    token = signer.sign(SnoozeLink(kind, namespace, name, cluster, channel, language, expires_at))
    start = f"{public_url.rstrip('/')}{SNOOZE_PATH}?link={token}"
    return [
        Button(messages.SNOOZE_BUTTON.text(language, hours=hours), f"{start}&hours={hours}") for hours in SNOOZE_HOURS
    ]


def make_details_button(public_url: str, workload: WorkloadKey, *, language: Language) -> Button:
    """To the page of the workload in the web UI. What has no name is `-` there."""
    parts = (workload.cluster, workload.kind, workload.namespace, workload.name)
    path = "/".join(quote(part, safe="") or "-" for part in parts)
    return Button(messages.DETAILS_BUTTON.text(language), f"{public_url.rstrip('/')}/ui/#/workloads/{path}")


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
