"""Parsers of outside text: 64 KiB of the worst text are refused or done within 50 ms of processor time.

YAML of clients has a test and a limit of its own, `test_yaml.py`.
"""

import base64
import contextlib
import gc
import math
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from http.client import HTTPException
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError
from starlette.datastructures import Headers

from gpusteward.agent.attribution import join_pairs
from gpusteward.agent.field_list import parse_fields
from gpusteward.agent.hpc_jobs import parse_jobs
from gpusteward.agent.http.connections import ClientConnection, ScrapeSlots
from gpusteward.agent.http.handler import ConnectionHandler, ServerContext
from gpusteward.agent.kubernetes import podresources
from gpusteward.agent.kubernetes.kubelet import accept_names, decode_listing
from gpusteward.agent.kubernetes.pods import LONGEST_TEXT, PAIR_GPUS_ANNOTATION, Pod, PodDecoder
from gpusteward.agent.processes import ProcessTable, parse_cgroup
from gpusteward.agent.shares.annotations import GRANT_ANNOTATIONS, MIG_ANNOTATION, read_fraction, read_grants
from gpusteward.agent.shares.ratio_file import read_ratio
from gpusteward.agent.shares.resolver import DeviceTable
from gpusteward.analyzer.api.http.identities import InvalidIdentityError, read_cookie, read_proxy_headers
from gpusteward.analyzer.api.http.jwt_tokens import InvalidTokenError, read_issuer
from gpusteward.analyzer.api.http.middleware import limit_request
from gpusteward.analyzer.api.http.problems import find_language
from gpusteward.analyzer.explain.opinions import ModelOutput
from gpusteward.analyzer.judge.gpu_models import find_model
from gpusteward.analyzer.notify.links import InvalidLinkError, LinkSigner
from gpusteward.analyzer.notify.notices.formatting import safe_line, safe_name
from gpusteward.analyzer.reclaim.cluster import count_gpus
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.policies.policy import ANNOTATIONS, KEEP, read_annotations
from gpusteward.analyzer.reports.report_query import parse_time
from gpusteward.analyzer.settings.auth import ProxySettings
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_vector, read_error
from gpusteward.analyzer.sources.owners.pods_by_name import is_on_node
from gpusteward.analyzer.sources.scrape.page_parser import ParseErrors, parse_labels, parse_line, parse_page
from gpusteward.control_characters import escape_controls
from gpusteward.core.errors import GpustewardError
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import GpuAllocation
from gpusteward.core.settings import InvalidSettingError, parse_duration
from gpusteward.http.connections import RawResponse
from gpusteward.http_server.access import parse_basic
from gpusteward.http_server.local_clients import is_local_request
from gpusteward.http_server.negotiation import accepts_gzip, choose_format
from gpusteward.http_server.web_config import WebConfig
from gpusteward.kubernetes.owners import PAIR_LABEL, Reference, find_workload
from tests.agent.http.clients import FakeContent
from tests.fakes.machines import write_process
from tests.http.servers import receiving

SIZE = 64 * 1024
MOST_SECONDS = 0.05
CALLS = 6
QUIET_SECONDS = 0.003
"""What `_measure_machine` takes on the machine of the limit while nothing else runs there. Beside other tests the two
threads of a core take turns, and the same work has up to twice the processor time."""
REFUSALS = (
    GpustewardError,
    ValueError,
    msgspec.MsgspecError,
    ValidationError,
    HTTPException,
    InvalidIdentityError,
    InvalidLinkError,
    InvalidTokenError,
)
"""What the callers of these parsers expect."""


def measure(parse: Callable[[], object]) -> float:
    """The processor time of the fastest call, as on a quiet machine. It is called again only while it is above the
    limit: the first call may load modules. Refusing is as good as done."""
    fastest = math.inf
    for _ in range(CALLS):
        taken = _measure_once(parse)
        if taken > MOST_SECONDS:
            taken /= max(1.0, _measure_machine() / QUIET_SECONDS)
        fastest = min(fastest, taken)
        if fastest <= MOST_SECONDS:
            break
    return fastest


def _measure_once(parse: Callable[[], object]) -> float:
    gc.disable()  # what the other tests of the process have left is not part of it
    try:
        begun = time.thread_time()
        with contextlib.suppress(*REFUSALS):
            parse()
        return time.thread_time() - begun
    finally:
        gc.enable()


def _measure_machine() -> float:
    begun, number = time.thread_time(), 0
    for each in range(150_000):
        number += each & 3
    return time.thread_time() - begun


def repeat(piece: str) -> str:
    return (piece * (SIZE // len(piece) + 1))[:SIZE]


CONTENT_TYPES = (
    *('boundary="' + repeat(";"), "boundary*=undefined''abc", "boundary*" + "1" * 5_000 + "=a"),
    *(repeat("a*0=b;"), "boundary=a\r\n " + repeat(";")),
)
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


def test_a_longer_list_of_the_gpus_of_a_pair_than_the_longest_text_is_not_read():
    assert decode_pod({PAIR_GPUS_ANNOTATION: "GPU-1," * LONGEST_TEXT}).annotations == {}
    assert decode_pod({PAIR_GPUS_ANNOTATION: "GPU-1"}).annotations == {PAIR_GPUS_ANNOTATION: "GPU-1"}


def decode_pod(annotations: Mapping[str, str], *, labels: Mapping[str, str] | None = None) -> Pod:
    about = {"name": "a", "namespace": "b", "uid": "c", "annotations": annotations, "labels": labels}
    return PodDecoder().read(msgspec.json.encode({"metadata": about}))


def repeated(*pieces: str) -> tuple[str, ...]:
    return tuple(map(repeat, pieces))


UUID, HASH = "01234567-89ab-cdef-0123-456789abcdef", "0123456789abcdef" * 4
NESTED_GRANT = '[{"containerIndex": 0, "deviceIndex": 0, "a": ' + repeat("[")
COMMON = repeated(
    "1", "-", "/", " ", ",", ";", ":", "=", "\n", "a,", 'a="b",', '"', "\\", "[", '{"a":', "\u202e", "é", "a=b&"
)
"""Of these every parser gets 64 KiB."""


def make_scope(name: str, value: str) -> dict[str, object]:
    return {"type": "http", "headers": [(name.encode(), value.encode("utf-8", "surrogatepass"))]}


def make_headers(name: str, value: str) -> Headers:
    return Headers({name: value.encode().decode("latin-1")})


def read_line(text: str) -> object:
    return parse_line(f"DCGM_FI_DEV_GPU_UTIL{text} 1".encode(), errors=ParseErrors())


def read_page(text: str) -> object:
    return parse_page(text.encode(), {}, {b"", b"a"}, errors=ParseErrors(), at=0.0)


AGENT = ServerContext(
    content=FakeContent(),
    web=WebConfig,
    scrapes=ScrapeSlots(16),
    read_seconds=10.0,
    write_seconds=10.0,
    idle_seconds=10.0,
    expose_snapshot=False,
)


def read_request(text: str) -> object:
    """As the agent reads and answers it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        client.sendall(text.encode()[: 32 * 1024])  # above its limit, so that the rest would be left in the socket
        client.shutdown(socket.SHUT_WR)
        connection = ClientConnection(listener.accept()[0], "127.0.0.1")
        ConnectionHandler(connection, AGENT).run()
        return None


def read_header(text: str) -> object:
    return read_request(f"GET / HTTP/1.1\r\nX-A: {text[: 12 * 1024]}\r\n\r\n")


def read_content_type(text: str) -> object:
    return read_request(f"GET / HTTP/1.1\r\nContent-Type: multipart/a; {text[: 15 * 1024]}\r\n\r\n")


def read_response_type(text: str) -> object:
    return read_response(f"HTTP/1.1 200 OK\r\nContent-Type: multipart/a; {text[:65_400]}\r\nContent-Length: 0\r\n\r\n")


def read_response(text: str) -> list[bytes]:
    with receiving(text.encode()) as timed, RawResponse(timed, "GET") as response:
        return list(iter(response.read_some, b""))


def read_chunks(text: str) -> object:
    return read_response(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{text}")


def read_kubelet(text: str) -> object:
    response = podresources.decode(text.encode("latin-1", "replace"), podresources.ListPodResourcesResponse)
    return decode_listing(response, accept_names(()))


def read_token(text: str) -> object:
    return read_issuer(f"a.{base64.urlsafe_b64encode(text.encode()).decode()}.c")


def read_opinion(text: str) -> ModelOutput:
    numbers = {"status": "idle", "confidence": 1, "adjusted_score": 1}
    return ModelOutput.model_validate_json(msgspec.json.encode({**numbers, "reason": text, "recommendation": text}))


def read_label(text: str) -> Pod:
    names = ("ray.io/originated-from-cr-name", "runai-gpu-group", "user", "team", "a" * 60)
    return decode_pod({}, labels=dict.fromkeys(names, text))


def read_annotation(text: str) -> object:
    names = ("gpu-fraction", "gpu-memory", MIG_ANNOTATION)
    pod = decode_pod({**dict.fromkeys(names, text[:LONGEST_TEXT]), GRANT_ANNOTATIONS[0]: "GPU-1,NVIDIA,1,2:"})
    return read_grants(pod), read_fraction(pod, "GPU-1", memory_bytes=1)


def read_pairs(text: str) -> object:
    """250 pods of a node, each of a pair whose GPUs are the longest text that is kept."""
    pod = decode_pod({PAIR_GPUS_ANNOTATION: text[:LONGEST_TEXT]})
    names = [f"{pair}-{side}" for pair in range(125) for side in (0, 1)]
    pods = {one: replace(pod, name=one, labels={PAIR_LABEL: f"{one[:-1]}{1 - int(one[-1])}"}) for one in names}
    return join_pairs([GpuAllocation(Container("b", name), "GPU-1") for name in names[::2]], pods)


def read_owner(text: str) -> object:
    owners = [Reference("v1", kind, text, controller=True) for kind in ("Job", "ReplicaSet", "StatefulSet")]
    return [find_workload("a", "b", owners=[each], labels={"pod-template-hash": text}) for each in owners]


def read_groups(text: str) -> object:
    headers = {"x-forwarded-user": "a", "x-forwarded-groups": text.encode().decode("latin-1")}
    return read_proxy_headers(Headers(headers), ProxySettings())


def read_pod(text: str) -> object:
    with contextlib.suppress(RecursionError):  # nested too deeply; its caller skips the pod
        return PodDecoder().read(text.encode())


def read_gpus(text: str) -> object:
    resources = {"limits": {"nvidia.com/gpu": text}, "requests": {"nvidia.com/gpu": text}}
    return count_gpus(KubeObject("v1", "Pod", {"spec": {"containers": [{"name": "a", "resources": resources}]}}))


PARSERS: Mapping[str, tuple[Callable[[str], object], Iterable[str]]] = {
    "cgroup paths": (
        lambda text: parse_cgroup(f"0::/{text}"),
        repeated(
            f"/pod{UUID}", f"/pod{UUID}/{HASH}", f"/{HASH}", "-pod", "/a-", f"{HASH[:63]}-", f"/{UUID}", "\n0::/a"
        ),
    ),
    "device ids": (DeviceTable([]).find, repeated("::1", "gpu-0-mig-", "mig-gpu-/1/1", "a[-1]", "nvidia0/gi1")),
    "labels of pods": (read_label, ()),
    "GPUs of pairs": (read_pairs, ()),
    "annotations of pods": (read_annotation, ("[" + "{}," * 20_000, "0." + repeat("1"), NESTED_GRANT)),
    "owners of pods": (read_owner, repeated("-00000000", "-1")),
    "quantities of pods": (read_gpus, repeated("1e", "1k", "9")),
    "pods of the API server": (read_pod, repeated('{"metadata":{"labels":', "[[", '{"a":[')),
    "messages of the kubelet": (read_kubelet, repeated("\n\0", "\n\2\32\0", "\n\6\32\4\22\2\22\0", "\10\1", "\xff")),
    "lists of fields": (
        lambda text: parse_fields(text, where="a"),
        repeated('""', '"\n', "a,gauge,b\n", "DCGM_FI_", "_A"),
    ),
    "files of jobs": (lambda text: parse_jobs(text.encode()), repeated("1\n", "\r\n")),
    "metrics pages": (read_page, repeated("a{} 1\n", "a{\n", "a 1 1\n", "} ")),
    "lines of metrics pages": (read_line, repeated('{a="', '{a="\\', "} ", " = ")),
    "labels of metrics pages": (lambda text: parse_labels(text.encode()), repeated('a="\\n",', 'a = "b" ,', "a " * 9)),
    "vectors of an engine": (lambda text: decode_vector(text.encode()), repeated('{"metric":{}},', '{"data":')),
    "labels of an engine": (lambda text: decode_labels(text.encode()), repeated('{"a":"b",', '"a":')),
    "errors of an engine": (lambda text: read_error(text.encode()), repeated('{"error":')),
    "names of nodes": (
        lambda text: is_on_node(text, "node-1", ("10.0.0.1",)),
        repeated("-bbbbb", "a.", "[", ":1", "::1"),
    ),
    "names of GPU models": (find_model, repeated("_-", "A100 ", "RTX-")),
    "names in notices": (lambda text: (safe_name(text), safe_line(text)), repeated(".a", "://")),
    "names on screens": (escape_controls, repeated("\U000e0001", "\x1b[")),
    "Accept": (choose_format, repeated("a;b=c,", "q=1;", "*/*,", "text/plain;q=0.")),
    "Accept-Encoding": (accepts_gzip, repeated("gzip;q=0.1,")),
    "Accept-Language": (
        lambda text: find_language(make_headers("accept-language", text)),
        repeated("zh-CN,", "en;q=0.1,"),
    ),
    "Authorization": (parse_basic, ("Basic " + repeat("YTpi"), "Basic " + repeat("="), "Basic" + repeat(" "))),
    "tokens": (read_token, repeated('{"iss":', '{"a":"b",')),
    "identity headers": (lambda text: read_proxy_headers(make_headers("x-forwarded-user", text), ProxySettings()), ()),
    "groups of an identity": (read_groups, ()),
    "cookies": (
        lambda text: read_cookie(make_headers("cookie", text)),
        repeated("a=b;", 'a="\\"', "gpusteward_session;"),
    ),
    "Content-Length": (lambda text: limit_request(make_scope("content-length", text)), repeated("0", "+1", "1,")),
    "cookies of the framework": (
        lambda text: limit_request(make_scope("cookie", text)),
        repeated('a="\\', "gpusteward_session=a;"),
    ),
    "forwarded requests": (
        lambda text: is_local_request("127.0.0.1", make_headers("host", text)),
        repeated("[::", "%", "@"),
    ),
    "referrers": (lambda text: is_local_request("127.0.0.1", make_headers("referer", text)), repeated("http://", "//")),
    "requests to the agent": (
        read_request,
        ("GET " + repeat("a"), "GET" + repeat(" "), *repeated("GET / HTTP/1.1\r\n", "a ")),
    ),
    "headers to the agent": (read_header, repeated("\r\n a", "\r\nA: b", "\r")),
    "types of content to the agent": (read_content_type, CONTENT_TYPES),
    "types of content of receivers and targets": (read_response_type, CONTENT_TYPES),
    "responses of receivers and targets": (
        read_response,
        ("HTTP/1.1 200 " + repeat("a"), *repeated("HTTP/1.1 100 A\r\n\r\n")),
    ),
    "chunks of receivers and targets": (read_chunks, repeated("1\r\na\r\n", "1;", "f", "1 ")),
    "links of notices": (lambda text: LinkSigner().verify(text, now=0.0), repeated("a.", "YTpi", "=")),
    "answers of a model": (read_opinion, repeated("\u200b", "\t")),
    "times": (lambda text: parse_time(text, before_ms=0), (repeat("1") + "d", *repeated("2026-11-01T", "0d"))),
    "durations": (parse_duration, DURATIONS.values()),
}


@pytest.mark.parametrize("name", PARSERS)
def test_the_worst_text_is_refused_or_done_at_once(name: str):
    parse, texts = PARSERS[name]
    taken = {text[:40]: measure(partial(parse, text)) for text in (*COMMON, *texts)}
    assert {text: seconds for text, seconds in taken.items() if seconds > MOST_SECONDS} == {}


def test_files_of_a_node(tmp_path: Path):
    for text in COMMON:
        (tmp_path / "ratio").write_text(text)
        assert measure(lambda: read_ratio(tmp_path / "ratio")) < MOST_SECONDS
    for number, text in enumerate(COMMON[:5], 1):
        write_process(tmp_path, number, cgroup=text, argv0="a")
        (tmp_path / str(number) / "cmdline").write_text(text)
        assert measure(lambda number=number: ProcessTable(tmp_path).identify(number)) < MOST_SECONDS  # type: ignore[misc]
        assert len(ProcessTable(tmp_path).identify(number).name) <= 256
