"""Questions -> answers in columns. A few are under way at once; each answer is joined as soon as it is there."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import Vector, decode_pieces
from gpusteward.analyzer.sources.engine.text_keys import TextKeys
from gpusteward.analyzer.sources.promql.expressions import Query
from gpusteward.analyzer.sources.usage.keys import Details, Keys, Rows
from gpusteward.analyzer.sources.usage.quantities import LAST_WORDS, Asked, Fold, Level, Quantity
from gpusteward.analyzer.tables import Column
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)


_NO_ROWS: Column = np.empty(0)


@dataclass(frozen=True, slots=True)
class Located:
    """A piece of an answer by rows: small, where its text was large."""

    query: Query
    rows: Rows
    values: Column | None  # in base units; None: it says words
    said: list[Details]


@dataclass(frozen=True, slots=True)
class Errand:
    """Something to fetch that answers one or more questions."""

    queries: tuple[Query, ...]
    fetch: Callable[["Desk"], list[Located]]


@dataclass
class Gathered:
    """All answers about one dialect in one cycle; the rows outlive it."""

    holders: Keys
    devices: Keys
    present: dict[int, Details] = field(default_factory=dict)  # holder rows that answered the roll call
    identities: dict[int, Details] = field(default_factory=dict)  # device rows that name themselves
    claimed_twice: set[int] = field(default_factory=set)  # holder rows that two nodes name
    failures: dict[Asked, str] = field(default_factory=dict)
    hit_limit: bool = False
    before: Sequence[int] = ()  # holder rows of earlier cycles, of which nobody said that they have ended
    remembered: dict[int, Details] = field(default_factory=dict)  # what holder rows said that are silent now
    _columns: dict[Asked, Column] = field(default_factory=dict)

    def add(self, found: Located) -> None:
        """Join a piece of an answer that came whole."""
        if found.values is not None:
            self.put(found.query.asked, found.rows, found.values)
        elif found.query.asked == LAST_WORDS:
            self.remembered.update(zip(found.rows.tolist(), found.said, strict=True))
        elif found.query.quantity is Quantity.PRESENCE:
            self.call(zip(found.rows.tolist(), found.said, strict=True))
        else:
            self.identities.update(zip(found.rows.tolist(), found.said, strict=True))

    def put(self, asked: Asked, rows: Rows, values: Column) -> None:
        """Join values in base units, a row each; of several for one row the largest stays."""
        self._columns.setdefault(asked, _NO_ROWS)
        np.fmax.at(self._grow(asked, len(self.holders if asked[0] is Level.HOLDER else self.devices)), rows, values)

    def recall(self, asked: Asked, column: Column) -> None:
        """Values of an earlier cycle, where this one has none."""
        now = self._grow(asked, max(len(column), len(self._columns.get(asked, _NO_ROWS))))
        now[: len(column)] = np.where(np.isnan(now[: len(column)]), column, now[: len(column)])

    def call(self, answers: Iterable[tuple[int, Details]]) -> None:
        """Who answered the roll call. Two exporters may speak of one device; two nodes cannot hold it."""
        present = self.present
        for row, said in answers:
            if (before := present.setdefault(row, said)) is not said and before[0] != said[0]:
                self.claimed_twice.add(row)

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was answered."""
        return not self.present and not self._columns

    def fail(self, queries: Iterable[Query], reason: str) -> None:
        for query in queries:
            self.failures[query.asked] = reason

    def has(self, level: Level, quantity: Quantity, fold: Fold) -> bool:
        return (level, quantity, fold) in self._columns

    def column(self, level: Level, quantity: Quantity, fold: Fold) -> Column:
        """A value a row; NaN where nobody said one. Of several the largest."""
        size = len(self.holders if level is Level.HOLDER else self.devices)
        return self._grow((level, quantity, fold), size) if self.has(level, quantity, fold) else np.full(size, np.nan)

    def _grow(self, asked: Asked, size: int) -> Column:
        """The column, as long as there are rows by now."""
        column = self._columns.get(asked, _NO_ROWS)
        if len(column) < size:
            column = self._columns[asked] = np.concatenate((column, np.full(size - len(column), np.nan)))
        return column


class Desk:
    """Where answers are read as they arrive, by one at a time."""

    def __init__(self, holders: TextKeys, devices: TextKeys, *, before: Sequence[int] = ()) -> None:
        """`before`: holder rows of earlier cycles, of which nobody said that they have ended."""
        self.gathered = Gathered(holders, devices, before=before)
        self._holders, self._devices = holders, devices
        self._lock = threading.Lock()

    def locate(self, query: Query, vector: Vector) -> Located:
        """Whom a piece of an answer speaks of. Raises SourceError for labels that cannot be read."""
        keys = self._holders if query.level is Level.HOLDER else self._devices
        with self._lock:
            if query.quantity in (Quantity.PRESENCE, Quantity.IDENTITY):
                rows, said = keys.describe(vector.labels, query.by[keys.width :])
                return Located(query, rows, None, said)
            rows = keys.find(vector.labels)
        scale = 1.0 if query.fold is Fold.COUNT else query.scale
        return Located(query, rows, vector.values if scale == 1.0 else vector.values * scale, [])

    def join(self, pieces: Iterable[Located]) -> None:
        """An answer that came whole."""
        with self._lock:
            for piece in pieces:
                self.gathered.add(piece)

    def fail(self, queries: Iterable[Query], error: SourceError) -> None:
        with self._lock:
            self.gathered.fail(queries, str(error))
            self.gathered.hit_limit |= isinstance(error, LimitError)


def run_errands(errands: Sequence[Errand], desk: Desk, *, at_once: int) -> None:
    """Fetch everything, join what came, note what did not. Raises nothing.

    `at_once` are computed by the engine, while one more is read.
    """
    with ThreadPoolExecutor(max_workers=at_once + 1, thread_name_prefix="engine") as pool:
        for done in [pool.submit(_run, errand, desk) for errand in errands]:
            done.result()


def _run(errand: Errand, desk: Desk) -> None:
    try:
        desk.join(errand.fetch(desk))
    except SourceError as error:
        names = ", ".join(sorted({f"{query.quantity} {query.fold}" for query in errand.queries}))
        log.warning("query_failed", asked=names, reason=error)
        desk.fail(errand.queries, error)


def failed_quantities(failures: Mapping[Asked, str]) -> dict[str, str]:
    """By the words people know them under."""
    return {f"{level} {quantity} {fold}": reason for (level, quantity, fold), reason in failures.items()}


def ask(engine: Engine, query: Query, expression: str, at: float, desk: Desk) -> list[Located]:
    """The answer to one query, read as it arrives: whole texts of it are never in memory. Raises SourceError."""

    def read(pieces: Iterable[bytes]) -> list[Located]:
        return [desk.locate(query, vector) for vector in decode_pieces(pieces)]

    return engine.read_query(expression, at, read)
