"""Large responses in columns, made and compressed once per result: indexes stand for repeated names."""

import re
import threading
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Annotated, Generic, TypeVar

import msgspec
from fastapi import Query, Request, Response

from gpusteward.analyzer.api.http.responses import JSON_TYPE, has_current, send_body, send_not_modified
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.pagination import dependencies_of, make_etag, stamp
from gpusteward.analyzer.results import Result
from gpusteward.http_server.gzip_body import Body
from gpusteward.http_server.negotiation import accepts_gzip

Key = TypeVar("Key", bound=Hashable)

SelectedCluster = Annotated[
    str | None, Query(max_length=253, description="Only this cluster, empty for the one without a name; default: all.")
]


class Dictionary(Generic[Key]):
    """Numbers different values in the order of their first use."""

    def __init__(self) -> None:
        self._codes: dict[Key, int] = {}

    def code(self, name: Key) -> int:
        return self._codes.setdefault(name, len(self._codes))

    @property
    def names(self) -> list[Key]:
        return list(self._codes)


@lru_cache(maxsize=65536)
def natural_key(text: str) -> tuple[tuple[int, str], ...]:
    """Sorts `node-9` before `node-10`."""
    return tuple((int(part) if part.isdecimal() else -1, part) for part in re.split(r"([0-9]+)", text))


class _LatestBody:
    """A body that is made again when its version changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[bytes, Body] | None = None

    def get(self, version: bytes, make: Callable[[], Body]) -> Body:
        made = self._made
        if made is None or made[0] != version:
            with self._lock:
                made = self._made
                if made is None or made[0] != version:
                    made = self._made = (version, make())
        return made[1]


def send_compact(
    request: Request,
    published: PublishedResult,
    name: str,
    cluster: str | None,
    make: Callable[[Result], Mapping[str, object]],
    *,
    version: bytes = b"",
    extra: Mapping[str, object] | None = None,
) -> Response:
    """What `make` returns, with `extra` and the stamp of the result, or 304 when the client has it. It is made once per
    result, cluster and `version`, which says what else it was made from."""
    result = published.result
    last = msgspec.json.encode(extra or {})[1:-1]
    etag = make_etag(request, result, version=version + last)
    if has_current(request, etag):
        return send_not_modified(etag)
    is_known = cluster is None or cluster in result.workloads.clusters or cluster in result.verdicts.usage.clusters
    # Other names must not fill the memory.
    latest = published.once((name, cluster), lambda _: _LatestBody()) if is_known else _LatestBody()
    body = latest.get(version, lambda: _pack(make(result)))
    when = b'"result":' + msgspec.json.encode(stamp(result, dependencies_of(request)))
    tail = b"," + (last + b"," if last else b"") + when + b"}"
    gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
    return send_body(body, gzip=gzip, media_type=JSON_TYPE, tail=tail, etag=etag)


def _pack(value: Mapping[str, object]) -> Body:
    """Without the closing brace: the stamp follows."""
    return Body([msgspec.json.encode(value)[:-1]])
