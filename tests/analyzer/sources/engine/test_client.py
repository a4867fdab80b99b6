"""The HTTP client of the engine: credentials, limits, retries, and secrets that never leak."""

import base64
import gc
import gzip
import logging
import ssl
import threading
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from gpusteward.analyzer.setting_values import SecretFile
from gpusteward.analyzer.sources.engine.client import Engine, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_vector
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS
from gpusteward.core.errors import ConfigurationError, SourceError
from tests.analyzer.sources.faulty_engine import FaultyEngine, fails, faulty
from tests.constants import make_settings
from tests.garbage import collecting_garbage, keeping_garbage

EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.fixture
def server() -> Iterator[FaultyEngine]:
    with faulty("http://127.0.0.1:9") as one:
        one.fault = fails("", status=200, body=EMPTY)
        yield one


def query(
    server: FaultyEngine, prefix: str = "", *, limit_bytes: int = DEFAULT_LIMITS.whole_response, **settings: object
) -> bytes:
    chosen = make_settings(PrometheusSettings, url=server.url + prefix, retry_delay_seconds=0.01, **settings)
    with closing(Engine(chosen, limits=replace(DEFAULT_LIMITS, whole_response=limit_bytes))) as engine:
        return engine.query("up", 1.0)


def test_a_query_carries_headers_and_requests_no_compression(server: FaultyEngine):
    assert query(server, headers={"X-Scope-OrgID": "team-a"}) == EMPTY
    (headers,) = server.headers_seen
    assert headers["X-Scope-OrgID"] == "team-a"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["User-Agent"] == "gpusteward"
    assert "Authorization" not in headers


def test_basic_authentication_takes_its_password_from_a_file(server: FaultyEngine, tmp_path: Path):
    (tmp_path / "password").write_text("s3cret\n")
    query(server, username="me", password=SecretFile(tmp_path / "password"))
    assert server.headers_seen[0]["Authorization"] == "Basic " + base64.b64encode(b"me:s3cret").decode()


def test_a_bearer_token_is_read_again_when_its_file_changes(server: FaultyEngine, tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("first\n")
    with closing(Engine(PrometheusSettings(url=server.url, bearer_token=SecretFile(path)))) as engine:
        engine.query("up", 1.0)
        (tmp_path / "next").write_text("second")
        (tmp_path / "next").replace(path)
        engine.query("up", 1.0)
        path.unlink()
        with pytest.raises(SourceError, match="bearer_token_file"):
            engine.query("up", 1.0)
    assert [seen["Authorization"] for seen in server.headers_seen] == ["Bearer first", "Bearer second"]


def test_a_path_prefix_and_long_queries_reach_the_engine(server: FaultyEngine):
    with closing(Engine(PrometheusSettings(url=server.url + "/prometheus/"))) as engine:
        engine.query("x" * 200_000, 1.0)
    assert server.queries == ["x" * 200_000]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_transient_error_is_retried_and_then_reported(server: FaultyEngine, status: int):
    server.fault = fails("", status=status)
    with pytest.raises(SourceError, match=str(status)):
        query(server, retries=2)
    assert len(server.queries) == 3


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (400, "400"),
        (401, "bearer_token and headers .*X-Scope-OrgID"),
        (403, "bearer_token and headers .*X-Scope-OrgID"),
        (404, "path in prometheus.url"),
    ],
)
def test_a_permanent_error_is_not_retried_and_names_the_setting(server: FaultyEngine, status: int, hint: str):
    server.fault = fails("", status=status)
    with pytest.raises(SourceError, match=hint):
        query(server, retries=3)
    assert len(server.queries) == 1


def test_a_limit_of_the_engine_has_its_own_error(server: FaultyEngine):
    server.fault = fails("", status=422, body=b'{"status":"error","error":"query would load too many samples"}')
    with pytest.raises(LimitError, match="too many samples"):
        query(server)


def test_secrets_appear_in_no_error_and_no_log(server: FaultyEngine, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    settings = PrometheusSettings(
        url=server.url.replace("//", "//me:hush1@"),
        username="me",
        password="hush2",
        bearer_token="hush3",
        headers={"X-Key": "hush4"},
    )
    server.fault = fails("", status=503)
    with closing(Engine(settings)) as engine, pytest.raises(SourceError) as caught:
        engine.query("up", 1.0)
    exposed = f"{caught.value!r} {caught.value.__cause__!r} {engine!r} {settings.headers}"
    exposed += " ".join(f"{record.getMessage()} {getattr(record, 'facts', '')}" for record in caplog.records)
    assert "hush" not in exposed


@pytest.mark.parametrize(
    "settings",
    [{"bearer_token": "hush\n5"}, {"headers": {"X-Key": "hush\r\nX-Role: admin"}}, {"bearer_token": "hush文"}],
)
def test_an_invalid_header_is_refused_without_repeating_it(server: FaultyEngine, settings: dict[str, object]):
    with pytest.raises(SourceError, match=r"cannot be sent: check prometheus\.headers and the token") as caught:
        query(server, retries=0, **settings)
    assert "hush" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert not server.headers_seen


def test_an_incomplete_response_leaves_no_socket_open(server: FaultyEngine):
    """An open socket is reported by the garbage collector when the error that refers to it is dropped."""

    def hang(handler, _: str) -> bool:
        handler.respond(200, EMPTY[:9], length=1000, Connection="close")
        return server.over.wait(5)

    server.fault = hang
    with keeping_garbage(), warnings.catch_warnings(record=True) as recorded:
        with pytest.raises(SourceError, match="no complete response") as caught:
            query(server, retries=0, timeout_seconds=0.2)
        server.over.set()
        warnings.simplefilter("always")
        caught.value.__notes__ = [caught]  # a reference cycle, as an error kept with its frames is
        del caught
        gc.collect(0)
    assert [str(each.message) for each in recorded if each.category is ResourceWarning] == []


def test_the_number_of_concurrent_queries_is_limited(server: FaultyEngine):
    under_way, most, lock = [0], [0], threading.Lock()
    all_slots_used = threading.Barrier(3)

    def count(handler, _: str) -> bool:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        all_slots_used.wait(5)
        with lock:
            under_way[0] -= 1
        handler.respond(200, EMPTY)
        return True

    server.fault = count
    settings = make_settings(PrometheusSettings, url=server.url, max_concurrent_queries=5)
    with closing(Engine(settings, max_workers=3)) as engine, ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: engine.query("up", 1.0), range(21)))
    assert most[0] == 3


def test_the_timeout_limits_the_whole_response(server: FaultyEngine):
    def drip(handler, _: str) -> bool:
        handler.respond(200, b"", length=1000)
        for _ in range(100):
            if handler.server.over.wait(0.05):
                break
            handler.wfile.write(b" ")
        return True

    server.fault = drip
    began = time.monotonic()
    with pytest.raises(SourceError, match="no complete response"):
        query(server, timeout_seconds=0.4)
    assert time.monotonic() - began < 3


def test_a_compressed_response_is_decoded(server: FaultyEngine):
    server.fault = packed(gzip.compress(EMPTY))
    assert query(server, accept_encoding="gzip") == EMPTY
    assert server.headers_seen[0]["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize("body", [gzip.compress(EMPTY, mtime=0)[:-9], b"not packed at all", b""])
def test_a_response_that_cannot_be_decoded_is_an_error(server: FaultyEngine, body: bytes):
    server.fault = packed(body)
    with pytest.raises(SourceError):
        query(server, retries=0)
    server.fault = packed(EMPTY, encoding="br")
    with pytest.raises(SourceError, match=r"prometheus\.url"):
        query(server, retries=0)


def test_a_small_response_that_expands_to_a_large_one_is_not_read_to_its_end(server: FaultyEngine):
    server.fault = packed(gzip.compress(b" " * (64 << 20)))
    tracemalloc.start()
    with pytest.raises(LimitError, match=r"memory\.budget_bytes"):
        query(server, limit_bytes=4 << 20)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16 << 20


def packed(body: bytes, encoding: str = "gzip"):
    def respond(handler, _: str) -> bool:
        handler.respond(200, body, Content_Encoding=encoding)
        return True

    return respond


def test_a_private_ca_is_trusted_only_if_it_is_set(tmp_path: Path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = FaultyEngine("http://127.0.0.1:9")
    server.fault = fails("", status=200, body=EMPTY)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    url = f"https://localhost:{server.server_port}"
    try:
        with closing(Engine(PrometheusSettings(url=url, ca_file=tmp_path / "ca.pem"))) as engine:
            assert engine.query("up", 1.0) == EMPTY
        with (
            closing(Engine(make_settings(PrometheusSettings, url=url, retries=0))) as engine,
            pytest.raises(SourceError, match="certificate"),
        ):
            engine.query("up", 1.0)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_unreadable_files_are_configuration_errors_that_name_the_setting(tmp_path: Path):
    missing = tmp_path / "missing"
    with pytest.raises(ConfigurationError, match=r"prometheus\.ca_file"):
        Engine(PrometheusSettings(url="https://localhost", ca_file=missing))
    with pytest.raises(ConfigurationError, match=r"prometheus\.password_file"):
        Engine(PrometheusSettings(url="http://localhost", username="me", password=SecretFile(missing)))


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, EMPTY), (200, b"[" * 100_000), (200, b"x" * 200_000), (503, b"x" * 50_000), (422, b"x" * 200_000)],
    ids=["good", "deep", "large", "busy", "refused"],
)
def test_a_response_is_freed_without_the_garbage_collector(server: FaultyEngine, status: int, body: bytes):
    server.fault = fails("", status=status, body=body)
    with collecting_garbage() as garbage, suppress(SourceError):
        decode_vector(query(server, limit_bytes=100_000, retries=1))
    assert garbage == []
