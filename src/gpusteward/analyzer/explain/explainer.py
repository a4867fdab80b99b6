"""Asks a model within budget and time. A model that is down, slow, wrong or hostile costs nothing but its opinion."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusteward.analyzer.explain.answers import Opinion
from gpusteward.analyzer.explain.failures import HOPELESS, WORTH_REPEATING, AskError, Failure
from gpusteward.analyzer.explain.models import Asker, Reply, load_sdk, open_model
from gpusteward.analyzer.explain.opinion_cache import OpinionMemory
from gpusteward.analyzer.explain.prompt_cases import Case, fingerprint
from gpusteward.analyzer.explain.questions import question
from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.analyzer.explain.tallies import Tally
from gpusteward.logs import Log

log = Log(__name__)

LONGEST_WAIT_SECONDS = 60.0

Alike = Mapping[str, Sequence[Case]]
"""Cases by fingerprint: the eight GPUs of a pod that does nothing are one question."""


@dataclass
class _Round:
    """What one cycle has left, and what it found."""

    now: float
    budget: int
    is_hopeless: bool = False
    opinions: dict[str, Opinion] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # case -> what went wrong


class Explainer:
    """Opinions by the key of their case. Used from one worker thread; only `interrupt` may come from another."""

    def __init__(self, settings: AiSettings) -> None:
        self.tally = Tally()
        self._settings = settings
        self._memory = OpinionMemory(settings.cache_size)
        self._tools_refused = False
        self._interrupted = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def adopt(self, settings: AiSettings) -> None:
        """Other settings from the next cycle on; opinions and counts stay."""
        self._settings = settings
        self._tools_refused = False
        self._memory.resize(settings.cache_size)

    def interrupt(self) -> None:
        """Come back at once, with what there is, and ask no more: the program ends."""
        self._interrupted.set()
        if (running := self._running) is not None:
            loop, task = running
            loop.call_soon_threadsafe(task.cancel)

    def explain(self, cases: Sequence[Case], *, now: float) -> Mapping[str, Opinion]:
        """Remembered opinions, and as many new ones as budget and time allow. Never raises."""
        round_ = _Round(now, self._settings.budget)
        unanswered = self._recall(cases, round_)
        if unanswered and round_.budget and not self._interrupted.is_set():
            self._ask_in_own_loop(unanswered, round_)
        self.tally.skipped += sum(case.key not in round_.opinions and case.key not in round_.failures for case in cases)
        self._tell(round_)
        return round_.opinions

    def _recall(self, cases: Sequence[Case], round_: _Round) -> Alike:
        """The cases nobody was asked about yet; those that would be answered alike are one question."""
        unanswered: dict[str, list[Case]] = {}
        settings = self._settings
        for case in cases:
            mark = fingerprint(case, asked_as=f"{settings.api_url} {settings.model} {settings.language}")
            opinion = self._memory.recall(mark)
            if opinion is None:
                unanswered.setdefault(mark, []).append(case)
            else:
                self.tally.recalled += 1
                round_.opinions[case.key] = replace(opinion, rule_score=case.score)
        return unanswered

    def _ask_in_own_loop(self, unanswered: Alike, round_: _Round) -> None:
        """Opinions are put down as they come in: when time is up, those already there stay."""
        try:
            load_sdk(self._settings)  # takes seconds the first time, and not those of the model
            asyncio.run(self._ask_all(unanswered, round_))
        except asyncio.CancelledError:
            log.info("explaining_interrupted", opinions=len(round_.opinions))
        except AskError as error:  # the model could not even be opened
            self.tally.failures[error.failure] += 1
            round_.failures[""] = str(error)
        finally:
            self._running = None

    async def _ask_all(self, unanswered: Alike, round_: _Round) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running = (asyncio.get_running_loop(), task)
        if self._interrupted.is_set():  # between the last look and being reachable
            return
        try:
            async with asyncio.timeout(self._settings.cycle_timeout), open_model(self._settings) as asker:
                await self._ask_side_by_side(unanswered, asker, round_=round_)
        except TimeoutError:
            self.tally.failures[Failure.TIMEOUT] += 1

    async def _ask_side_by_side(self, unanswered: Alike, asker: Asker, *, round_: _Round) -> None:
        waiting = iter(unanswered.items())

        async def work() -> None:
            for mark, cases in waiting:
                if round_.is_hopeless or not round_.budget:
                    return
                await self._ask_about(mark, cases, asker=asker, round_=round_)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._settings.concurrency, len(unanswered))):
                group.create_task(work())

    async def _ask_about(self, mark: str, cases: Sequence[Case], *, asker: Asker, round_: _Round) -> None:
        try:
            reply = await self._ask_repeatedly(question(cases[0]), asker, round_=round_)
        except AskError as error:
            round_.failures |= dict.fromkeys((case.key for case in cases), str(error))
            round_.is_hopeless |= error.failure in HOPELESS
        else:
            self._keep(mark, cases, reply=reply, round_=round_)

    def _keep(self, mark: str, cases: Sequence[Case], *, reply: Reply, round_: _Round) -> None:
        self.tally.opinions += 1
        self.tally.pay(reply.input_tokens, reply.output_tokens, settings=self._settings)
        opinion = reply.answer.opinion(rule_score=None, model=self._settings.model, asked_at=round_.now)
        self._memory.remember(mark, opinion)
        round_.opinions |= {case.key: replace(opinion, rule_score=case.score) for case in cases}

    async def _ask_repeatedly(self, text: str, asker: Asker, *, round_: _Round) -> Reply:
        """Raises AskError, the last one, when repeating does not help or is not allowed."""
        for repetition in range(self._settings.retry_times + 1):
            try:
                return await self._ask_once(text, asker, round_=round_)
            except AskError as error:
                changes_manner = self._note_refusal_of_tools(error)
                is_last = repetition == self._settings.retry_times or not round_.budget
                if is_last or not (changes_manner or error.failure in WORTH_REPEATING):
                    raise
                await asyncio.sleep(0 if changes_manner else self._wait_seconds(error, repetition))
                if not round_.budget:  # others used it up meanwhile
                    raise
        raise AskError(Failure.UNEXPECTED)  # unreachable: the last repetition returns or raises

    async def _ask_once(self, text: str, asker: Asker, *, round_: _Round) -> Reply:
        round_.budget -= 1
        self.tally.calls += 1
        try:
            return await asker.ask(text, as_tool=self._asks_for_tools())
        except AskError as error:
            self.tally.failures[error.failure] += 1
            raise

    def _asks_for_tools(self) -> bool:
        return self._settings.output == "tool" or (self._settings.output == "auto" and not self._tools_refused)

    def _note_refusal_of_tools(self, error: AskError) -> bool:
        """Servers without tools refuse the request or answer in text: from then on JSON text is asked for."""
        refused = error.failure in (Failure.REFUSED, Failure.WRONG_ANSWER)
        if not refused or self._settings.output != "auto" or self._tools_refused:
            return False
        self._tools_refused = True
        return True

    def _wait_seconds(self, error: AskError, repetition: int) -> float:
        wait = self._settings.retry_delay * 2.0**repetition
        return min(max(wait, error.wait_seconds or 0.0), LONGEST_WAIT_SECONDS)

    def _tell(self, round_: _Round) -> None:
        if round_.failures:
            kinds = ",".join(sorted(set(round_.failures.values())))
            log.warning("opinions_missing", cases=len(round_.failures), kinds=kinds, opinions=len(round_.opinions))
