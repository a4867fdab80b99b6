"""Questions in threads, so that the screen never waits for an answer, nor at its end.

One question a group is under way at a time; while it is, only the latest of those that wait is kept. The threads are
daemons: leaving the screen waits for nobody.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.message import Message

from gpusteward.core.errors import GpustewardError


@dataclass
class Answered(Message):
    """What became of a question. `ticket` is whatever the asker gave along."""

    group: str
    ticket: object
    value: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Question:
    ticket: object
    ask: Callable[[], Any]


class Loader:
    """Asks in threads; answers come to the app as `Answered` messages."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._waiting: dict[str, _Question] = {}

    def ask(self, group: str, ticket: object, question: Callable[[], Any]) -> None:
        with self._lock:
            if group in self._busy:
                self._waiting[group] = _Question(ticket, question)
                return
            self._busy.add(group)
        work = threading.Thread(target=self._work, args=(group, _Question(ticket, question)), daemon=True)
        work.start()

    def _work(self, group: str, question: _Question) -> None:
        following: _Question | None = question
        while following is not None:
            self._app.post_message(self._answer(group, following))
            with self._lock:
                following = self._waiting.pop(group, None)
                if following is None:
                    self._busy.discard(group)

    def _answer(self, group: str, question: _Question) -> Answered:
        try:
            return Answered(group, question.ticket, question.ask())
        except GpustewardError as error:
            return Answered(group, question.ticket, error=str(error))
        # What nobody foresaw costs this one answer, not the screen.
        except Exception as error:  # noqa: BLE001
            return Answered(group, question.ticket, error=f"{type(error).__name__}: {error}")
