"""Decoding responses of an engine: anything unexpected is a SourceError, never a number."""

import gc
import json
import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusteward.analyzer.sources.engine import decode
from gpusteward.analyzer.sources.promql.query_runner import TextRowIndex
from gpusteward.analyzer.sources.usage.query_results import DeviceKey
from gpusteward.core.errors import SourceError

pytestmark = pytest.mark.slow


def vector(*rows: tuple[dict[str, str], str], **head: object) -> bytes:
    result = [{"metric": metric, "value": [1790000000.5, value]} for metric, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}} | head).encode()


GOOD = vector(({"UUID": "GPU-1", "pod": "a"}, "1.5"), ({"UUID": "GPU-2", "pod": 'ü\n"x'}, "NaN"), ({}, "+Inf"))


def test_values_are_numbers_and_anything_else_is_unknown():
    response = decode.decode_vector(GOOD)
    assert response.values[0] == 1.5
    assert math.isnan(response.values[1])
    assert math.isnan(response.values[2])
    assert decode.decode_labels(response.labels[1]) == {"UUID": "GPU-2", "pod": 'ü\n"x'}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"status":"error","errorType":"bad_data","error":"parse error at char 3"}', "parse error at char 3"),
        (b'{"status":"error"}', "the engine reports an error: error"),
        (b"<html>502 Bad Gateway</html>", "cannot be read"),
        (b"", "cannot be read"),
        (GOOD[: len(GOOD) // 2], "cannot be read"),
        (b'{"status":"success"}', "instead of vector"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "returned matrix"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "cannot be read"),
        (vector(({}, "many")), "'many' instead of a number"),
        (vector(({}, "1"), isPartial=True), "incomplete"),
    ],
)
def test_an_unusable_response_is_an_error_with_a_reason(body: bytes, words: str):
    with pytest.raises(SourceError, match=words):
        decode.decode_vector(body)


@pytest.mark.parametrize(
    ("warning", "missing"),
    [
        ("fetch series for {} Addr: 10.0.0.7:10901 MinTime: 1 MaxTime: 2: rpc error", {"10.0.0.7:10901"}),
        ("receive series from Addr: 10.0.0.7:10901 LabelSets: {}: EOF", {"10.0.0.7:10901"}),
        ("remote storage did not respond", {"remote storage did not respond"}),
        ("PromQL info: metric might not be a counter", set()),
    ],
)
@pytest.mark.parametrize("value", ["1", "+Inf"])
def test_a_partial_response_names_the_stores_that_are_missing(warning: str, missing: set[str], value: str):
    body = vector(({}, value), warnings=[warning])
    assert decode.decode_vector(body).missing_stores == missing
    assert list(decode.decode_pieces([body]))[-1].missing_stores == missing


def test_promql_warnings_do_not_invalidate_a_response():
    body = vector(({}, "1"), warnings=["PromQL warning: bucket"], infos=["PromQL info: metric might not be a counter"])
    assert len(decode.decode_vector(body)) == 1


def test_invalid_labels_are_an_error():
    response = decode.decode_vector(
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":5},"value":[1,"2"]}]}}'
    )
    with pytest.raises(SourceError, match="labels"):
        TextRowIndex(DeviceKey("a", "b")).add_texts(response.labels)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_corrupted_response_raises_only_source_errors(data: st.DataObject):
    body = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(len(body) - 1, 0)))
        kind = data.draw(st.sampled_from(["flip", "drop", "insert", "cut", "repeat"]))
        if kind == "flip" and body:
            body[at] = data.draw(st.integers(0, 255))
        elif kind == "drop":
            del body[at : at + data.draw(st.integers(1, 20))]
        elif kind == "insert":
            body[at:at] = data.draw(st.binary(min_size=1, max_size=12))
        elif kind == "cut":
            del body[at:]
        else:
            body[at:at] = body[: data.draw(st.integers(0, 60))]
    read_everything(bytes(body))


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["status", "data", "result", "resultType", "metric", "value", "warnings", "isPartial"]),
                inner,
            )
        ),
    )
)
@settings(max_examples=300, deadline=None)
def test_an_unexpected_shape_raises_only_source_errors(shape: object):
    read_everything(json.dumps(shape).encode())


def long_response(rows: int) -> bytes:
    row = {"namespace": 'a"},{"metric":{', "pod": "p" * 150}
    return (
        vector(*((row | {"UUID": str(number)}, str(number)) for number in range(rows)))
        .replace(b", ", b",")
        .replace(b": ", b":")
    )


def cut(body: bytes, size: int = 99_991) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


@pytest.mark.parametrize("rows", [0, 1, 7, 20_000])
def test_a_response_decoded_in_parts_equals_the_whole_response(rows: int):
    body = long_response(rows)
    whole = decode.decode_vector(body)
    slices = list(decode.decode_pieces(cut(body)))
    assert (len(slices) > 1) is (rows == 20_000)
    decoded = {text: value for piece in slices for text, value in zip(piece.labels, piece.values.tolist(), strict=True)}
    assert decoded == dict(zip(whole.labels, whole.values.tolist(), strict=True))


@pytest.mark.parametrize("at", [100, 1_500_000, -30, -2])
def test_a_truncated_response_is_an_error_at_its_end(at: int):
    with pytest.raises(SourceError):
        list(decode.decode_pieces(cut(long_response(20_000)[:at])))


def test_a_corrupted_part_is_an_error():
    body = bytearray(long_response(20_000))
    body[1_600_000] = 0
    with pytest.raises(SourceError):
        list(decode.decode_pieces(cut(bytes(body))))


def test_deep_nesting_is_an_error_and_no_crash():
    read_everything(b'{"x":' + b"[" * 200_000)
    read_everything(b'{"status":"success","data":{"resultType":"vector","result":[{"metric":' + b'{"a":' * 100_000)


def read_everything(body: bytes) -> None:
    for read in (decode.decode_vector, decode.decode_matrix, decode.decode_names, decode.decode_plain):
        try:
            response = read(body)
            if isinstance(response, decode.Vector):
                TextRowIndex(DeviceKey("UUID", "pod")).add_texts(response.labels)
        except SourceError:
            pass
    assert gc.isenabled()


def test_a_disabled_garbage_collector_stays_disabled():
    gc.disable()
    try:
        with decode.paused_collector(), decode.paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    with decode.paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_range_leaves_out_points_without_a_number():
    row = {"metric": {"a": "b"}, "values": [[1, "0.5"], [2, "NaN"], [3, "1"]]}
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [row]}}).encode()
    assert decode.decode_matrix(body) == [({"a": "b"}, [(1.0, 0.5), (3.0, 1.0)])]
