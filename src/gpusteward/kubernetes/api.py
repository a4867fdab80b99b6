"""Read access to the Kubernetes API server: one JSON object or list, or a watch.

Only the few needed fields are decoded, because a whole client library costs more memory than the agent may use. The
token is sent only over TLS.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, unquote

import msgspec

from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.kinds import plural_of
from gpusteward.core.messages import Message
from gpusteward.http.client import HttpClient, Request, Response
from gpusteward.http.connections import load_tls_context
from gpusteward.http.credentials import TokenFile, is_token
from gpusteward.http.errors import ConfigurationFileError, HttpError, ResponseTooLargeError, TlsError
from gpusteward.http.urls import parse_url
from gpusteward.messages.errors import kubernetes_errors as messages

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RESPONSE_LIMIT_BYTES = 64 << 20  # 250 pods of 20 KB are 5 MB; a response of ten times that is not a list of pods
LINE_LIMIT_BYTES = 8 << 20  # etcd keeps no object over 1.5 MiB; escaped as JSON it can grow
_OBJECT_STATUSES = (400, 404, 405, 406)  # other errors are those of the server, and would occur for any path
PAGE_SIZE = 500  # objects of one list request
PAGE_BYTES = 16 << 20  # a page that is larger is asked for again with a quarter of the objects
_RESOURCE = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/[^/]+/(?:namespaces/[^/]+/)?(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?"
)
_T = TypeVar("_T")


class GoneError(SourceError):
    """410: the resource version is too old to continue from; list again."""


class TooLargeError(SourceError):
    """The response is larger than the limit; a smaller page of a list may not be."""


class ObjectError(SourceError):
    """The server responds, but this one object cannot be read: forbidden, missing or malformed."""

    def __init__(self, message: Message, *, http_status: int = 200, **fields: object) -> None:
        super().__init__(message, **fields)
        self.http_status = http_status


class NotFoundError(ObjectError):
    """404, and its Status names the object: it does not exist. Any other 404 is about the path, and says nothing about
    the object: its kind or version is not served, or not any more; an aggregated server or a proxy answers."""


class _ListMetadata(msgspec.Struct):
    token: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct, Generic[_T]):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[_T] | None = None


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class Status(msgspec.Struct):
    """What the server says about an error."""

    message: str | None = None
    reason: str | None = None
    details: dict[str, Any] | None = None

    def names(self, path: str) -> bool:
        """Whether it says of the object at this path that there is none."""
        found, details = _RESOURCE.search(path), self.details or {}
        return (
            found is not None
            and found["name"] is not None
            and self.reason == "NotFound"
            and (details.get("kind"), details.get("name")) == (found["resource"], unquote(found["name"]))
        )


class ApiServer:
    """The Kubernetes API at one URL. Every request opens its own connection and reads the CA file again, except within
    `keeping_connections`."""

    def __init__(
        self,
        url: str,
        *,
        token_path: Path | None = None,
        ca_path: Path | None = None,
        timeout_seconds: float = 10.0,
        user_agent: str = "gpusteward-agent",
    ) -> None:
        """Raises ConfigurationError if `url` is not a plain http or https URL."""
        self.url = url.rstrip("/")
        try:
            self._url = parse_url(self.url)
        except ValueError as error:
            raise ConfigurationError(messages.INVALID_URL, url=self.url.rpartition("@")[2], reason=error) from None
        if self._url.username or self._url.password:
            raise ConfigurationError(messages.URL_WITH_CREDENTIALS)
        self._token_file = TokenFile(token_path, setting="the service account token") if token_path else None
        self._ca_path = ca_path
        self._timeout_seconds = timeout_seconds
        self._user_agent = user_agent
        self._shared: HttpClient | None = None

    @classmethod
    def from_cluster(
        cls,
        environ: Mapping[str, str],
        *,
        account: Path = SERVICE_ACCOUNT,
        timeout_seconds: float = 10.0,
        user_agent: str = "gpusteward-agent",
    ) -> Self:
        """The API server of the cluster this pod runs in. Raises SourceError outside of a cluster."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise SourceError(messages.NOT_IN_A_POD)
        if not (account / "token").exists():
            raise SourceError(messages.NO_TOKEN_MOUNTED, path=account / "token")
        host = f"[{host}]" if ":" in host else host
        return cls(
            f"https://{host}:{port}",
            token_path=account / "token",
            ca_path=account / "ca.crt",
            timeout_seconds=timeout_seconds,
            user_agent=user_agent,
        )

    def read_json(
        self, path: str, kind: type[_T], *, limit_bytes: int | None = None, accept: str = "application/json"
    ) -> _T:
        """Fetch a path and decode it.

        Raises SourceError: ObjectError if only this path cannot be read, GoneError for 410, TooLargeError.
        """
        limit_bytes = RESPONSE_LIMIT_BYTES if limit_bytes is None else limit_bytes
        with (
            self._open_client() as client,
            self._translate_errors(path),
            client.send(
                self._make_request(path, accept), timeout_seconds=self._timeout_seconds, limit_bytes=limit_bytes
            ) as response,
        ):
            self._check_status(path, response)
            body = response.read()
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ObjectError(messages.NOT_DECODED, url=self.url, path=_without_query(path), reason=error) from error

    def read_pages(
        self, path: str, kind: type[_T], *, size: int = PAGE_SIZE, accept: str = "application/json"
    ) -> Iterator[list[_T]]:
        """The objects of a list, page by page; smaller pages where one would be too large: the objects of one tenant
        must not fail a list of all. Raises SourceError."""
        token, start = "", f"{path}{'&' if '?' in path else '?'}limit="
        while True:
            position = f"&continue={quote(token, safe='')}" if token else ""
            try:
                url = f"{start}{size}{position}"
                page = self.read_json(url, _Page[kind], limit_bytes=PAGE_BYTES, accept=accept)  # type: ignore[valid-type]
            except TooLargeError:
                if size == 1:
                    raise
                size = max(1, size // 4)
                continue
            token = page.metadata.token or ""
            yield page.items or []
            if not token:
                return

    def read_config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """The text entries of a ConfigMap. Raises SourceError."""
        return self.read_json(make_path("v1", "ConfigMap", namespace, name), _ConfigMap).data or {}

    def watch(self, path: str, *, idle_timeout_seconds: float) -> "Watch":
        """Open a watch, which ends if nothing arrives for that long. Raises SourceError, GoneError for 410."""
        with contextlib.ExitStack() as opened:
            client = opened.enter_context(self._open_client())
            with self._translate_errors(path):
                response = opened.enter_context(
                    client.send(
                        self._make_request(path),
                        timeout_seconds=self._timeout_seconds,
                        idle_timeout_seconds=idle_timeout_seconds,
                    )
                )
                self._check_status(path, response)
            return Watch(client, response, opened.pop_all())

    @contextlib.contextmanager
    def keeping_connections(self) -> Iterator[None]:
        """Requests share connections: reading hundreds of objects would otherwise cost as many TLS handshakes. For one
        block at a time; within another one it changes nothing. Raises SourceError."""
        if self._shared is not None:
            yield
            return
        with self._open_client(keeps_connections=True) as client:
            self._shared = client
            try:
                yield
            finally:
                self._shared = None

    @contextlib.contextmanager
    def _open_client(self, *, keeps_connections: bool = False) -> Iterator[HttpClient]:
        if (shared := self._shared) is not None:
            yield shared
            return
        try:
            tls = load_tls_context(self._ca_path) if self._url.is_tls else None
        except ConfigurationFileError as error:
            raise SourceError(messages.REQUEST_FAILED, url=self.url, reason=error) from error
        with contextlib.closing(HttpClient(self._url, tls=tls, keeps_connections=keeps_connections)) as client:
            yield client

    def _make_request(self, path: str, accept: str = "application/json") -> Request:
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if self._token_file is not None and self._url.is_tls:
            token = self._token_file.read()
            if not is_token(token):
                raise SourceError(messages.NOT_A_TOKEN, path=self._token_file.path)
            headers["Authorization"] = f"Bearer {token}"
        return Request("GET", path, headers=headers)

    @contextlib.contextmanager
    def _translate_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except TlsError as error:
            trusted = self._ca_path or messages.SYSTEM_CERTIFICATES
            raise SourceError(messages.TLS_FAILED, url=self.url, reason=error, trusted=trusted) from error
        except HttpError as error:
            kind = TooLargeError if isinstance(error, ResponseTooLargeError) else SourceError
            raise kind(messages.REQUEST_FAILED, url=f"{self.url}{_without_query(path)}", reason=error) from error

    def _check_status(self, path: str, response: Response) -> None:
        """Raises SourceError for everything but 200, with a hint."""
        status, path = response.status, _without_query(path)
        if status == 200:
            return
        if 300 <= status < 400:
            raise SourceError(messages.REDIRECTED, url=self.url, path=path, status=status)
        said = read_status(response)
        fields = {"url": self.url, "path": path, "status": status, "reason": said.message}
        if status == 410:
            raise GoneError(messages.GONE, **fields)
        if status == 401:
            raise SourceError(messages.UNAUTHORIZED, **fields)
        if status == 403:
            raise ObjectError(messages.FORBIDDEN, **fields, rule=_missing_rule(path), http_status=status)
        if status == 404 and said.names(path):
            raise NotFoundError(messages.BAD_STATUS, **fields, http_status=status)
        if status in _OBJECT_STATUSES:
            raise ObjectError(messages.BAD_STATUS, **fields, http_status=status)
        raise SourceError(messages.BAD_STATUS, **fields)


def read_own_namespace(environ: Mapping[str, str], *, account: Path = SERVICE_ACCOUNT) -> str:
    """The namespace this pod runs in: POD_NAMESPACE, or that of its service account; empty outside of a cluster."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return environ.get("POD_NAMESPACE", "").strip() or (account / "namespace").read_text().strip()
    return ""


def make_path(version: str, kind: str, namespace: str, name: str = "") -> str:
    """The path of an object, or of all objects of its kind, in one namespace or in all."""
    start = f"/apis/{version}" if "/" in version else f"/api/{version or 'v1'}"
    where = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{start}{where}/{plural_of(kind)}" + (f"/{quote(name, safe='')}" if name else "")


def parse_time(text: str | None) -> float | None:
    """RFC 3339 -> unix seconds; None: absent or malformed."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


class Watch:
    """The events of a watch, as lines. Belongs to one thread; `interrupt` may be called from any other."""

    def __init__(self, client: HttpClient, response: Response, opened: contextlib.ExitStack) -> None:
        """`opened`: closes response and client."""
        self._client = client
        self._response = response
        self._opened = opened

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yields lines until the server ends the watch. Raises SourceError."""
        try:
            yield from self._response.lines(limit_bytes=LINE_LIMIT_BYTES)
        except HttpError as error:
            raise SourceError(messages.WATCH_FAILED, reason=error) from error

    def interrupt(self) -> None:
        """End the watch, even while a read is blocked. Safe at any time, from any thread."""
        self._client.close()


def _without_query(path: str) -> str:
    """The path as errors show it. The query of a watch differs each time, and an error must be the same to be logged
    once."""
    return path.partition("?")[0]


def _missing_rule(path: str) -> Message:
    """What the service account needs to read this path."""
    if "/configmaps/" in path:
        return messages.CONFIG_MAP_RULE
    resource = _RESOURCE.search(path)
    if resource is None or path == "/api/v1/pods":
        return messages.POD_RULE
    verbs = '"get"' if resource["name"] else '"get", "list"'
    return messages.RESOURCE_RULE.fill(group=resource["group"] or "", resource=resource["resource"], verbs=verbs)


def read_status(response: Response) -> Status:
    """The Status object of an error; of another body, the start of it as the message."""
    body = response.read_start(65536)
    try:
        said = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = Status(message=body.decode("utf-8", "replace"))
    said.message = " ".join((said.message or "").split())[:300] or response.reason
    return said
