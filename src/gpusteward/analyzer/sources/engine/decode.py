"""Decodes responses of the engine. A truncated, incomplete or unexpected response is a SourceError, never a zero."""

import gc
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from operator import attrgetter, itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from gpusteward.analyzer.tables import Column
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log
from gpusteward.messages.errors import engine_errors

log = Log(__name__)

Body = bytes | bytearray
_D = TypeVar("_D")
_Row = TypeVar("_Row", bound="_VectorRow | _TextRow | _MatrixRow")


class _EngineResponse(msgspec.Struct, Generic[_D], gc=False, rename="camel"):
    """What every response contains beside its data."""

    status: str
    error: str = ""
    warnings: list[str] = []
    infos: list[str] = []
    is_partial: bool = False
    data: _D | None = None


class _Result(msgspec.Struct, Generic[_Row], gc=False, rename="camel"):
    """The data of a query."""

    result_type: str
    result: list[_Row]


class _VectorRow(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: tuple[float, float]  # the second is a string: the decoders below convert it


class _TextRow(msgspec.Struct, gc=False):
    """The same with the value as text, for numbers that msgspec does not convert: `+Inf`."""

    metric: msgspec.Raw
    value: tuple[float, str]


class _MatrixRow(msgspec.Struct, gc=False):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _ErrorResponse(msgspec.Struct, gc=False):
    error: str = ""


_VECTOR = msgspec.json.Decoder(_EngineResponse[_Result[_VectorRow]], strict=False)  # converts strings to numbers
_ROWS = msgspec.json.Decoder(list[_VectorRow], strict=False)
_TEXT_VECTOR = msgspec.json.Decoder(_EngineResponse[_Result[_TextRow]])
_TEXT_ROWS = msgspec.json.Decoder(list[_TextRow])
_MATRIX = msgspec.json.Decoder(_EngineResponse[_Result[_MatrixRow]])
_NAMES = msgspec.json.Decoder(_EngineResponse[list[str]])
_PLAIN = msgspec.json.Decoder(_EngineResponse[dict[str, Any]])
_ERROR = msgspec.json.Decoder(_ErrorResponse)
_METRIC, _VALUE, _SECOND = attrgetter("metric"), attrgetter("value"), itemgetter(1)
_SLICE_BYTES = 1 << 19
_ROW_LIMIT_BYTES = 4 << 20
"""Of one row, or of everything before the first: labels are short, and what is not divided is decoded as a whole."""
_PLAIN_LIMIT_BYTES = 1 << 20
_ROW = b'{"metric":'
_FIRST_ROW = b"[" + _ROW
_ROW_END = b"}," + _ROW
_LABELS = msgspec.json.Decoder(dict[str, str])
_STORE_ADDRESS = re.compile(r"\bAddr: (\S+)")


@dataclass(frozen=True, slots=True)
class Vector:
    """One value per series. Labels stay JSON texts: an engine writes the same text in every response."""

    labels: list[bytes]
    values: Column  # NaN where the engine has no number
    missing_stores: frozenset[str] = frozenset()
    """Stores of a distributed engine that did not respond: series or samples may be missing."""

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self) -> Iterator[tuple[dict[str, str], float]]:
        """The labels and the value of each series. Raises SourceError."""
        return zip(map(decode_labels, self.labels), self.values.tolist(), strict=True)


class MatrixSeries(NamedTuple):
    """A series of a range query: unix seconds and values."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


def decode_vector(body: Body) -> Vector:
    """An instant vector. Raises SourceError."""
    with paused_collector():
        try:
            response = _decode(_VECTOR, body)
            vector = _vector(_result(response.data, "vector"))
            warnings = response.warnings
        except _FormatError:
            texts = _decode(_TEXT_VECTOR, body)
            vector, warnings = _vector(_result(texts.data, "vector")), texts.warnings
    # A warning of the storage means that series or samples are missing; PromQL warnings are about style. Thanos names
    # the address of the store; the rest of the text changes from query to query.
    missing = (text for text in warnings if not text.startswith("PromQL"))
    stores = (found[1] if (found := _STORE_ADDRESS.search(text)) else text[:200] for text in missing)
    return replace(vector, missing_stores=frozenset(stores))


def decode_pieces(pieces: Iterable[bytes]) -> Iterator[Vector]:
    """An instant vector in parts, as it arrives: a decoded response takes several times the memory of its text.

    Rows are separated by `},{"metric":` in every engine; no label can contain that, as its quotes would be escaped. The
    last part contains the head and the end of the response, so the parts are valid only if it can be decoded as well.
    Raises SourceError.
    """
    head, rows = b"", bytearray()
    for piece in pieces:
        rows += piece
        if len(rows) < _SLICE_BYTES:
            continue
        if not head and (first := rows.find(_FIRST_ROW)) > 0:
            head = bytes(rows[:first])
            del rows[:first]
        if len(rows) > _ROW_LIMIT_BYTES:
            raise SourceError(engine_errors.ROW_TOO_LARGE, limit_bytes=_ROW_LIMIT_BYTES)
        if head and (end := rows.rfind(_ROW_END) + 1):
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
        return _vector(_TEXT_ROWS.decode(text))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(engine_errors.UNREADABLE_RESPONSE, reason=error) from error


def _result(data: _Result[_Row] | None, result_type: str) -> list[_Row]:
    if data is None or data.result_type != result_type:
        actual = data.result_type if data else engine_errors.NO_RESULT
        raise SourceError(engine_errors.WRONG_RESULT_TYPE, actual=actual, expected=result_type)
    return data.result


def _vector(rows: list[_VectorRow] | list[_TextRow]) -> Vector:
    try:
        values = np.fromiter(map(_SECOND, map(_VALUE, rows)), np.float64, len(rows))  # numpy also converts texts
    except ValueError:
        values = np.array([_number(row.value[1]) for row in rows])  # raises for the invalid one
    values[~np.isfinite(values)] = np.nan
    return Vector(list(map(bytes, map(_METRIC, rows))), values)


def decode_matrix(body: Body) -> list[MatrixSeries]:
    """The series of a range query; points without a number are left out. Raises SourceError."""
    with paused_collector():
        return [
            MatrixSeries(row.metric, [(at, value) for at, text in row.values if isfinite(value := _number(text))])
            for row in _result(_decode(_MATRIX, body).data, "matrix")
        ]


def decode_names(body: Body) -> list[str]:
    """Names of metrics or labels. Raises SourceError."""
    return _decode(_NAMES, body).data or []


def decode_plain(body: Body) -> dict[str, Any]:
    """A small JSON object of any shape: `[],` has 3 bytes and becomes 64. Raises SourceError."""
    if len(body) > _PLAIN_LIMIT_BYTES:
        raise SourceError(engine_errors.ROW_TOO_LARGE, limit_bytes=_PLAIN_LIMIT_BYTES)
    return _decode(_PLAIN, body).data or {}


def decode_labels(text: bytes) -> dict[str, str]:
    """The labels of one series. Raises SourceError."""
    try:
        return _LABELS.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(engine_errors.UNREADABLE_LABELS, reason=error) from error


def read_error(body: Body) -> str:
    """The error text of a response, empty if it has none."""
    try:
        return _ERROR.decode(body).error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


class _FormatError(SourceError):
    """Not the shape that was expected."""


def _decode(decoder: msgspec.json.Decoder[_EngineResponse[_D]], body: Body) -> _EngineResponse[_D]:
    try:
        response = decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if text := read_error(body):
            raise _FormatError(engine_errors.ENGINE_ERROR, reason=text) from error
        raise _FormatError(engine_errors.UNREADABLE_RESPONSE, reason=error) from error
    if response.status != "success":
        raise SourceError(engine_errors.ENGINE_ERROR, reason=response.error or response.status)
    if response.is_partial:
        raise SourceError(engine_errors.PARTIAL_RESPONSE, reason=engine_errors.STORAGE_NODE_MISSING)
    if response.warnings or response.infos:
        log.debug("engine_warnings", warnings="; ".join((*response.warnings, *response.infos)))
    return response


def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SourceError(engine_errors.NOT_A_NUMBER, text=repr(str(text)[:40])) from error


_pause_lock = threading.Lock()
_pauses: list[bool] = []
"""One of each thread that is decoding now: whether the garbage collector was enabled before it."""


@contextmanager
def paused_collector() -> Iterator[None]:
    """Disables garbage collection while many small objects are created, none of which is garbage yet: twice as fast.

    Counted, because several responses are decoded at once and only the last one may enable it again.
    """
    with _pause_lock:
        _pauses.append(gc.isenabled() or any(_pauses))
        gc.disable()
    try:
        yield
    finally:
        with _pause_lock:
            if _pauses.pop() and not _pauses:
                gc.enable()
