"""Requests opinions within budget and time. A model that is down, slow, wrong or hostile only costs its opinion.

`OpinionRequests` does so in its own thread: no result waits for a model.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusteward.analyzer.explain.failures import FATAL, RETRYABLE, ModelError, ModelFailure
from gpusteward.analyzer.explain.model_client import ModelClient, ModelResponse, check_sdk, load_sdk, open_model
from gpusteward.analyzer.explain.opinions import Opinion, OpinionCache
from gpusteward.analyzer.explain.prompt_cases import Case, make_fingerprint
from gpusteward.analyzer.explain.prompts import write_prompt
from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.logs import Log

log = Log(__name__)

LONGEST_WAIT_SECONDS = 60.0

CasesByFingerprint = Mapping[str, Sequence[Case]]
"""Cases by fingerprint: the eight GPUs of an idle pod are one request."""


@dataclass(slots=True)
class ModelCounters:
    """Written by the thread that requests opinions, and `recalled` by the thread that runs cycles; read by any."""

    calls: int = 0  # requests sent, retries included
    opinions: int = 0  # usable responses
    recalled: int = 0  # opinions from the cache
    skipped: int = 0  # cases left for a later cycle: no budget or time left, or a fatal failure
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0  # in the currency of the prices
    failures: Counter[ModelFailure] = field(default_factory=Counter)

    def add_tokens(self, input_tokens: int, output_tokens: int, *, settings: AiSettings) -> None:
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cost += input_tokens / 1000 * settings.price_per_1k_tokens.get("input", 0)
        self.cost += output_tokens / 1000 * settings.price_per_1k_tokens.get("output", 0)


@dataclass
class _Cycle:
    """The state of the requests of one cycle: the remaining budget, opinions and failures."""

    settings: AiSettings
    now: float
    budget: int
    has_failed: bool = False
    opinions: dict[str, Opinion] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # case -> what went wrong


class Explainer:
    """Opinions by the key of their case. `explain` is called by one thread at a time, everything else by any."""

    def __init__(self, settings: AiSettings) -> None:
        """Raises ConfigurationError if it is enabled without the SDKs."""
        if settings.enabled:
            check_sdk()
        _warn_if_not_configured(settings)
        self.counters = ModelCounters()
        self._settings = settings
        self._cache = OpinionCache(settings.cache_size)
        self._tools_refused = False
        self._interrupted = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def adopt(self, settings: AiSettings) -> None:
        """Use other settings from the next cycle on; opinions and counters stay."""
        _warn_if_not_configured(settings)
        self._settings = settings
        self._tools_refused = False

    def interrupt(self) -> None:
        """Return at once with the opinions so far, and make no more requests: the program stops."""
        self._interrupted.set()
        if (running := self._running) is not None:
            loop, task = running
            loop.call_soon_threadsafe(task.cancel)

    @property
    def may_request(self) -> bool:
        """Whether the settings allow requests at all."""
        return self._settings.allows_requests and not self._interrupted.is_set()

    def recall(self, cases: Sequence[Case], *, now: float) -> Mapping[str, Opinion]:
        """Cached opinions only, at once."""
        cycle = _Cycle(self._settings, now, budget=0)
        self._find_cached(cases, cycle)
        return cycle.opinions

    def explain(self, cases: Sequence[Case], *, now: float) -> Mapping[str, Opinion]:
        """Cached opinions, and as many new ones as budget and time allow. Never raises."""
        cycle = _Cycle(self._settings, now, self._settings.budget)
        uncached = self._find_cached(cases, cycle)
        if uncached and self.may_request:
            self._request_in_own_loop(uncached, cycle)
        self.counters.skipped += sum(
            case.key not in cycle.opinions and case.key not in cycle.failures for case in cases
        )
        if cycle.failures:
            kinds = ",".join(sorted(set(cycle.failures.values())))
            log.warning("opinions_missing", cases=len(cycle.failures), kinds=kinds, opinions=len(cycle.opinions))
        return cycle.opinions

    def _find_cached(self, cases: Sequence[Case], cycle: _Cycle) -> CasesByFingerprint:
        """The cases without a cached opinion, grouped by fingerprint."""
        uncached: dict[str, list[Case]] = {}
        settings = cycle.settings
        for case in cases:
            fingerprint = make_fingerprint(case, model_key=f"{settings.api_url} {settings.model} {settings.language}")
            opinion = self._cache.find(fingerprint)
            if opinion is None:
                uncached.setdefault(fingerprint, []).append(case)
            else:
                self.counters.recalled += 1
                cycle.opinions[case.key] = replace(opinion, rule_score=case.score)
        return uncached

    def _request_in_own_loop(self, uncached: CasesByFingerprint, cycle: _Cycle) -> None:
        """Opinions are stored as they arrive: when time is up, those already there stay."""
        try:
            load_sdk(cycle.settings)  # takes seconds the first time, which must not count as the model's
            asyncio.run(self._request_all(uncached, cycle))
        except asyncio.CancelledError:
            log.info("opinions_interrupted", opinions=len(cycle.opinions))
        except ModelError as error:  # the client could not be opened
            self.counters.failures[error.failure] += 1
            cycle.failures[""] = str(error)
        finally:
            self._running = None

    async def _request_all(self, uncached: CasesByFingerprint, cycle: _Cycle) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running = (asyncio.get_running_loop(), task)
        if self._interrupted.is_set():  # interrupted before `_running` was set
            return
        try:
            async with (
                asyncio.timeout(cycle.settings.cycle_timeout),
                open_model(cycle.settings) as client,
                asyncio.TaskGroup() as group,
            ):
                waiting = iter(uncached.items())  # shared: each task takes the next case
                for _ in range(min(cycle.settings.concurrency, len(uncached))):
                    group.create_task(self._request_opinions(waiting, client, cycle=cycle))
        except TimeoutError:
            self.counters.failures[ModelFailure.TIMEOUT] += 1

    async def _request_opinions(
        self, waiting: Iterator[tuple[str, Sequence[Case]]], client: ModelClient, *, cycle: _Cycle
    ) -> None:
        """One after another, until the budget is spent or the other cases would fail in the same way."""
        for fingerprint, cases in waiting:
            if cycle.has_failed or not cycle.budget:
                return
            try:
                response = await self._request_with_retries(write_prompt(cases[0]), client, cycle=cycle)
            except ModelError as error:
                cycle.failures |= dict.fromkeys((case.key for case in cases), str(error))
                cycle.has_failed |= error.failure in FATAL
                continue
            self.counters.opinions += 1
            self.counters.add_tokens(response.input_tokens, response.output_tokens, settings=cycle.settings)
            opinion = response.output.opinion(rule_score=None, model=cycle.settings.model, asked_at=cycle.now)
            self._cache.add(fingerprint, opinion)
            cycle.opinions |= {case.key: replace(opinion, rule_score=case.score) for case in cases}

    async def _request_with_retries(self, text: str, client: ModelClient, *, cycle: _Cycle) -> ModelResponse:
        """Raises the last ModelError when a retry would not help or is not allowed."""
        attempt = 1
        while True:
            cycle.budget -= 1
            self.counters.calls += 1
            try:
                return await client.request(text, as_tool=self._uses_tools(cycle))
            except ModelError as error:
                self.counters.failures[error.failure] += 1
                changes_output = self._note_refusal_of_tools(error, cycle)  # the next request is another one, no retry
                is_last = attempt >= cycle.settings.retry_times and not changes_output
                if is_last or not cycle.budget or not (changes_output or error.failure in RETRYABLE):
                    raise
                await asyncio.sleep(0 if changes_output else _find_wait(error, attempt, cycle.settings))
                if not cycle.budget:  # used up by other requests meanwhile
                    raise
                attempt += not changes_output

    def _uses_tools(self, cycle: _Cycle) -> bool:
        return cycle.settings.output == "tool" or (cycle.settings.output == "auto" and not self._tools_refused)

    def _note_refusal_of_tools(self, error: ModelError, cycle: _Cycle) -> bool:
        """Servers without tools refuse the request or respond in text: from then on JSON text is requested."""
        refused = error.failure in (ModelFailure.REFUSED, ModelFailure.INVALID_RESPONSE)
        if not refused or cycle.settings.output != "auto" or self._tools_refused:
            return False
        self._tools_refused = True
        return True


def _warn_if_not_configured(settings: AiSettings) -> None:
    if settings.enabled and not settings.is_configured:
        log.warning("model_not_configured", help="set ai.api_url or a key; until then the model is not asked")


def _find_wait(error: ModelError, attempt: int, settings: AiSettings) -> float:
    """Seconds before the next attempt."""
    wait = settings.retry_delay * 2.0 ** min(attempt - 1, 32)
    return min(max(wait, error.wait_seconds or 0.0), LONGEST_WAIT_SECONDS)


class OpinionRequests:
    """Asks a model about the cases of a cycle, in its own thread. Used by the thread that runs cycles."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._thread: threading.Thread | None = None
        self.are_running = False  # set by both threads: one begins what the other one ends

    def start(
        self,
        cases: Sequence[Case],
        *,
        now: float,
        receive: Callable[[Mapping[str, Opinion]], None],
        on_end: Callable[[], None],
    ) -> bool:
        """Whether requests are running now, or have just ended. The other thread calls `receive` with their opinions
        while they still count as running, then `on_end`. While earlier requests are running no more are made: the cases
        are left for a later cycle."""

        def request() -> None:
            receive(self._explainer.explain(cases, now=now))
            self.are_running = False
            on_end()

        if self.are_running:
            return True
        if not cases or not self._explainer.may_request:
            return False
        self.are_running = True
        self._thread = threading.Thread(target=request, name="opinions", daemon=True)
        self._thread.start()
        return True

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end of running requests."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
