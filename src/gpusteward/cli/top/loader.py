"""Requests in threads, so that the UI never waits for a response, nor when it exits.

Per group one request runs at a time; of those that wait, only the latest is kept. The threads are daemons.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.message import Message

from gpusteward.core.errors import GpustewardError
from gpusteward.core.messages import Language


@dataclass
class Loaded(Message):
    """The result of a request. `key` identifies the request it belongs to."""

    group: str
    key: object
    value: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Request:
    key: object
    read: Callable[[], Any]


class Loader:
    """Results are sent to the app as `Loaded` messages."""

    def __init__(self, app: App[Any], language: Language) -> None:
        self._app = app
        self._language: Language = language
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._waiting: dict[str, _Request] = {}

    def load(self, group: str, key: object, read: Callable[[], Any]) -> None:
        with self._lock:
            if group in self._busy:
                self._waiting[group] = _Request(key, read)
                return
            self._busy.add(group)
        threading.Thread(target=self._work, args=(group, _Request(key, read)), daemon=True).start()

    def _work(self, group: str, request: _Request) -> None:
        current: _Request | None = request
        while current is not None:
            self._app.post_message(self._read(group, current))
            with self._lock:
                current = self._waiting.pop(group, None)
                if current is None:
                    self._busy.discard(group)

    def _read(self, group: str, request: _Request) -> Loaded:
        try:
            return Loaded(group, request.key, request.read())
        except GpustewardError as error:
            return Loaded(group, request.key, error=str(error))
        # An unexpected error costs this result, not the UI.
        except Exception as error:  # noqa: BLE001
            text = f"internal error: {type(error).__name__}: {error}"
            return Loaded(group, request.key, error=text)
