"""Answers of the engine -> values. Half an answer, a partial one or a stranger's is a SourceError, never a zero."""

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import msgspec
import numpy as np

from gpusteward.analyzer.tables import Column
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

Body = bytes | bytearray
_Answer = TypeVar("_Answer", bound="_Head")


class _Head(msgspec.Struct, gc=False, rename="camel"):
    """What every answer says beside its data."""

    status: str
    error: str = ""
    warnings: list[str] = []
    infos: list[str] = []
    is_partial: bool = False


class _VectorRow(msgspec.Struct, gc=False, rename="camel"):
    metric: msgspec.Raw
    value: tuple[float, float]  # the second is a text: the decoders below take it for the number it says


class _VectorData(msgspec.Struct, gc=False, rename="camel"):
    result_type: str
    result: list[_VectorRow]


class _VectorAnswer(_Head, gc=False, rename="camel"):
    data: _VectorData | None = None


class _SpelledRow(msgspec.Struct, gc=False, rename="camel"):
    """The same, for numbers that msgspec does not know: `+Inf`."""

    metric: msgspec.Raw
    value: tuple[float, str]


class _SpelledData(msgspec.Struct, gc=False, rename="camel"):
    result_type: str
    result: list[_SpelledRow]


class _SpelledAnswer(_Head, gc=False, rename="camel"):
    data: _SpelledData | None = None


class _MatrixRow(msgspec.Struct, gc=False, rename="camel"):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _MatrixData(msgspec.Struct, gc=False, rename="camel"):
    result_type: str
    result: list[_MatrixRow]


class _MatrixAnswer(_Head, gc=False, rename="camel"):
    data: _MatrixData | None = None


class _NamesAnswer(_Head, gc=False, rename="camel"):
    data: list[str] | None = None


class _PlainAnswer(_Head, gc=False, rename="camel"):
    data: dict[str, Any] | None = None


class _ErrorAnswer(msgspec.Struct, gc=False, rename="camel"):
    error: str = ""


_VECTOR = msgspec.json.Decoder(_VectorAnswer, strict=False)  # texts become numbers where numbers are wanted
_ROWS = msgspec.json.Decoder(list[_VectorRow], strict=False)
_SPELLED_VECTOR = msgspec.json.Decoder(_SpelledAnswer)
_SPELLED_ROWS = msgspec.json.Decoder(list[_SpelledRow])
_MATRIX = msgspec.json.Decoder(_MatrixAnswer)
_NAMES = msgspec.json.Decoder(_NamesAnswer)
_PLAIN = msgspec.json.Decoder(_PlainAnswer)
_ERROR = msgspec.json.Decoder(_ErrorAnswer)
_METRIC, _VALUE, _SECOND = attrgetter("metric"), attrgetter("value"), itemgetter(1)
_SLICE_BYTES = 1 << 19
_ROW = b'{"metric":'
_FIRST_ROW = b"[" + _ROW
_BETWEEN = b"}," + _ROW
_LABELS = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class Vector:
    """One value a series. The labels stay the text they came as: it is the same in every answer of one engine."""

    labels: list[bytes]
    values: Column  # NaN where the engine has no number

    def __len__(self) -> int:
        return len(self.labels)


Series = tuple[dict[str, str], list[tuple[float, float]]]


def decode_vector(body: Body) -> Vector:
    """An instant vector. Raises SourceError."""
    with paused_collector():
        try:
            return _vector(_result(_decode(_VECTOR, body)))
        except _UnreadableError:
            return _spelled_vector(_result(_decode(_SPELLED_VECTOR, body)))


def decode_pieces(pieces: Iterable[bytes]) -> Iterator[Vector]:
    """An instant vector in several, as it arrives: an answer taken apart is several times the size of its text.

    Rows end alike in every engine (`},{"metric":`, which no label can hold: its quotes would be escaped). The last one
    has the head and the end of the answer: none of them counts before it could be read. Raises SourceError.
    """
    head, rows = b"", bytearray()
    for piece in pieces:
        rows += piece
        if len(rows) < _SLICE_BYTES:
            continue
        if not head and (first := rows.find(_FIRST_ROW)) > 0:
            head = bytes(rows[:first])
            del rows[:first]
        if head and (end := rows.rfind(_BETWEEN) + 1):
            rest = rows[end + 1 :]
            rows[end:] = b"]"
            with paused_collector():
                yield _decode_rows(rows)
            rows = bytearray(b"[") + rest
    yield decode_vector(head + rows)


def _decode_rows(text: Body) -> Vector:
    try:
        return _vector(_ROWS.decode(text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return _spelled_vector(_SPELLED_ROWS.decode(text))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(f"the answer cannot be read: {error}") from error


def _result(answer: _VectorAnswer | _SpelledAnswer) -> Any:
    data = answer.data
    if data is None or data.result_type != "vector":
        raise SourceError(f"the engine answered with {data.result_type if data else 'nothing'}, not with a vector")
    return data.result


def _vector(rows: list[_VectorRow]) -> Vector:
    return _finish(rows, np.fromiter(map(_SECOND, map(_VALUE, rows)), np.float64, len(rows)))


def _spelled_vector(rows: list[_SpelledRow]) -> Vector:
    return _finish(rows, _numbers(list(map(_SECOND, map(_VALUE, rows)))))


def _finish(rows: list[_VectorRow] | list[_SpelledRow], values: Column) -> Vector:
    values[~np.isfinite(values)] = np.nan
    return Vector(list(map(bytes, map(_METRIC, rows))), values)


def decode_matrix(body: Body) -> list[Series]:
    """A range: labels and points of each series; points without a number are left out. Raises SourceError."""
    with paused_collector():
        data = _decode(_MATRIX, body).data
        if data is None or data.result_type != "matrix":
            raise SourceError(f"the engine answered with {data.result_type if data else 'nothing'}, not with a range")
        return [(row.metric, list(_finite(row.values))) for row in data.result]


def decode_names(body: Body) -> list[str]:
    """Names of metrics or labels. Raises SourceError."""
    return _decode(_NAMES, body).data or []


def decode_plain(body: Body) -> dict[str, Any]:
    """A small answer of any shape. Raises SourceError."""
    return _decode(_PLAIN, body).data or {}


def decode_labels(text: bytes) -> dict[str, str]:
    """Labels of one series. Raises SourceError."""
    try:
        return _LABELS.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(f"the engine sent labels that cannot be read: {error}") from error


def read_error(body: Body) -> str:
    """What the engine says went wrong, empty if it does not say."""
    try:
        return _ERROR.decode(body).error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


class _UnreadableError(SourceError):
    """Not the shape that was expected."""


def _decode(decoder: msgspec.json.Decoder[_Answer], body: Body) -> _Answer:
    try:
        answer = decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        said = read_error(body)
        raise _UnreadableError(f"the engine says: {said}" if said else f"the answer cannot be read: {error}") from error
    if answer.status != "success":
        raise SourceError(f"the engine says: {answer.error or answer.status}")
    _refuse_partial(answer)
    return answer


def _refuse_partial(answer: _Head) -> None:
    """A warning of the storage means that series or samples are missing; one of PromQL is about style."""
    missing = [text for text in answer.warnings if not text.startswith("PromQL")]
    if answer.is_partial or missing:
        raise SourceError(f"the answer is partial: {'; '.join(missing) or 'a storage node did not answer'}")
    if answer.warnings or answer.infos:
        log.debug("engine_remarked", remarks="; ".join((*answer.warnings, *answer.infos)))


def _numbers(texts: list[str]) -> Column:
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return np.array([_number(text) for text in texts])  # finds the culprit


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SourceError(f"the engine sent {text[:40]!r} where a number belongs") from error


def _finite(points: list[tuple[float, str]]) -> Iterator[tuple[float, float]]:
    for moment, text in points:
        if np.isfinite(value := _number(text)):
            yield moment, value


class _Pauses:
    """How many are decoding now, and whether the collector was on before the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._was_on = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count and self._was_on:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def paused_collector() -> Iterator[None]:
    """No garbage collection while many small objects are made: none of them is garbage yet. Worth a factor of two.

    Counted, because several answers are decoded at once and only the last one may switch it on again.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
