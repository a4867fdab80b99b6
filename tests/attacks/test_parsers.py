"""Parsers of outside text: 64 KiB of the worst text are refused or done within 50 ms of processor time."""

import contextlib
import gc
import time
from collections.abc import Callable, Mapping

import msgspec
import pytest

from gpusteward.agent.kubernetes.pod_records import LONGEST_TEXT, Pod, PodDecoder
from gpusteward.agent.shares.annotations import GRANT_ANNOTATIONS, read_grants
from gpusteward.analyzer.reclaim.policies.annotations import ANNOTATIONS, KEEP, read_annotations
from gpusteward.core.errors import GpustewardError
from gpusteward.core.settings import InvalidSettingError, parse_duration

SIZE = 64 * 1024
MOST_SECONDS = 0.05


def measure(parse: Callable[[], object]) -> float:
    """The processor time of the fastest of three calls: the first one may load modules. Refusing is as good as done."""
    return min(_measure_once(parse) for _ in range(3))


def _measure_once(parse: Callable[[], object]) -> float:
    gc.collect()
    begun = time.thread_time()
    with contextlib.suppress(GpustewardError, ValueError):
        parse()
    return time.thread_time() - begun


def repeat(piece: str) -> str:
    return (piece * (SIZE // len(piece) + 1))[:SIZE]


DURATIONS: Mapping[str, str] = {
    "digits": repeat("1"),
    "digits and a point": repeat("1") + ".",
    "points": repeat("1."),
    "parts": repeat("1s"),
    "spaces": repeat(" "),
}


@pytest.mark.parametrize("text", DURATIONS.values(), ids=DURATIONS)
def test_durations(text: str):
    assert measure(lambda: parse_duration(text)) < MOST_SECONDS
    with pytest.raises(InvalidSettingError):
        parse_duration(text)


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_annotations_of_owners(name: str):
    for text in (*DURATIONS.values(), repeat("true"), repeat("2027-01-31")):
        assert measure(lambda value=text: read_annotations({name: value})) < MOST_SECONDS  # type: ignore[misc]
        if text.strip():
            (problem,) = read_annotations({name: text}).problems
            assert len(problem.en) < 400


def test_an_annotation_of_the_longest_length_is_read():
    assert not read_annotations({KEEP: f"{'true':<256}"}).problems
    assert read_annotations({KEEP: "t" * 256}).problems[0].en.count("t") > 256
    assert "…" in read_annotations({KEEP: "t" * 257}).problems[0].en


@pytest.mark.parametrize("piece", ["GPU-1,NVIDIA,1,2:", ";", ":", ",", "1"])
@pytest.mark.parametrize("name", GRANT_ANNOTATIONS)
def test_annotations_of_schedulers(name: str, piece: str):
    assert decode_pod({name: repeat(piece)}).annotations == {}
    pod = decode_pod({name: repeat(piece)[:LONGEST_TEXT]})
    assert name in pod.annotations
    assert measure(lambda: read_grants(pod)) < MOST_SECONDS


def decode_pod(annotations: Mapping[str, str]) -> Pod:
    about = {"name": "a", "namespace": "b", "uid": "c", "annotations": annotations}
    return PodDecoder().read(msgspec.json.encode({"metadata": about}))
