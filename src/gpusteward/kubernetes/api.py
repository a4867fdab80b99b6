"""The only door to the API server: one JSON answer, or a watch read line by line.

`http.client` and a typed decode of the few fields asked for, because a whole client library costs more memory than
the rest of the agent may. Redirects are not followed, proxies of the environment not used, and the token leaves this
file only as a header of an encrypted request.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.kubernetes.watch_stream import LineStream, detect_dead_peers

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LONGEST_ANSWER_BYTES = 64 << 20  # 250 pods of 20 KB are 5 MB; more than ten times that is not an answer
_OF_THE_OBJECT = (400, 404, 405, 406)  # what else goes wrong is the server's, and would for any path
_Answer = TypeVar("_Answer")


class GoneError(SourceError):
    """410: what was asked for is too old to be continued; list again."""


class ObjectError(SourceError):
    """The server answers, but this one object cannot be had: forbidden, gone, or not what it should be."""

    def __init__(self, text: str, *, status: int = 200) -> None:
        super().__init__(text)
        self.status = status


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class _Status(msgspec.Struct):
    message: str | None = None


class ApiServer:
    """The Kubernetes API at one address. Every request opens its own connection and reads token and CA anew."""

    def __init__(
        self,
        url: str,
        *,
        token_path: Path | None = None,
        ca_path: Path | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Raises ConfigurationError if the address is not a plain http or https URL."""
        self.url = url.rstrip("/")
        self._host, self._port, self._prefix, self._is_tls = _split_url(self.url)
        self._token_path = token_path
        self._ca_path = ca_path
        self._timeout_seconds = timeout_seconds

    @classmethod
    def from_cluster(cls, environ: Mapping[str, str], *, account: Path = SERVICE_ACCOUNT) -> "ApiServer":
        """The API server of the cluster this pod runs in. Raises SourceError outside of one."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise SourceError("no API server: KUBERNETES_SERVICE_HOST is not set, so this is not a pod")
        if not (account / "token").exists():
            raise SourceError(f"no API server: {account / 'token'} is missing; is automountServiceAccountToken off?")
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", token_path=account / "token", ca_path=account / "ca.crt")

    def read_json(self, path: str, answer: type[_Answer]) -> _Answer:
        """Fetch a path and decode it.

        Raises SourceError: ObjectError where it is the fault of this path alone, GoneError for 410.
        """
        connection, response = self._request(path)
        with contextlib.closing(connection), contextlib.closing(response):
            try:
                return msgspec.json.decode(_read_bounded(response), type=answer)
            except (OSError, HTTPException) as error:
                raise SourceError(f"the answer of {self.url} to {path} broke off: {_explain(error)}") from error
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ObjectError(f"{self.url} did not answer {path} as an API server does: {error}") from error

    def read_config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """The text entries of a ConfigMap. Raises SourceError."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        return self.read_json(path, _ConfigMap).data or {}

    def watch(self, path: str, *, silence_seconds: float) -> LineStream:
        """Open a watch; a silence that long ends it. Raises SourceError, GoneError for 410."""
        connection, response = self._request(path)
        return LineStream(connection, response, silence_seconds=silence_seconds)

    def _request(self, path: str) -> tuple[socket.socket, HTTPResponse]:
        """The connection and an answer with status 200, its body unread."""
        headers = self._headers()
        with self._connect() as (http, connection):
            http.request("GET", self._prefix + path, headers=headers)
            response = http.getresponse()
            if response.status != 200:
                with contextlib.closing(response):
                    raise _refusal(self.url, path, response)
            return connection, response

    @contextlib.contextmanager
    def _connect(self) -> Iterator[tuple[HTTPConnection, socket.socket]]:
        """A connection that is closed, and its faults explained, if what is done with it fails."""
        http = self._new_connection()
        try:
            http.connect()
            # http.client lets go of the socket when an answer says it will close; a watch still needs it then.
            connection: socket.socket = http.sock
            detect_dead_peers(connection)
            yield http, connection
        except ssl.SSLError as error:
            http.close()
            trust = self._ca_path or "the system's certificates"
            raise SourceError(f"TLS with {self.url} failed: {_explain(error)} (trusted: {trust})") from error
        except (OSError, HTTPException) as error:
            http.close()
            raise SourceError(f"no answer from {self.url}: {_explain(error)}") from error
        except SourceError:
            http.close()
            raise

    def _new_connection(self) -> HTTPConnection:
        if not self._is_tls:
            return HTTPConnection(self._host, self._port, timeout=self._timeout_seconds)
        try:
            context = ssl.create_default_context(cafile=self._ca_path)
        except OSError as error:  # an SSLError is one too
            raise SourceError(f"cannot use the CA file {self._ca_path}: {_explain(error)}") from error
        return HTTPSConnection(self._host, self._port, timeout=self._timeout_seconds, context=context)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "gpusteward-agent"}
        if self._token_path is not None and self._is_tls:
            headers["Authorization"] = f"Bearer {_read_token(self._token_path)}"
        return headers


def _split_url(url: str) -> tuple[str, int | None, str, bool]:
    wanted = "write http://host:port or https://host:port"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"API server {url!r} is not a URL ({error}); {wanted}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in parts.netloc:
        raise ConfigurationError(f"API server {url!r} is not a plain URL; {wanted}")
    return parts.hostname, port, parts.path.rstrip("/"), parts.scheme == "https"


def _read_token(path: Path) -> str:
    """The token as it is now: it rotates. What is not one is refused here, where no error text repeats it."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read the service account token {path}: {type(error).__name__}") from None
    if not token.isprintable() or " " in token or not token:
        raise SourceError(f"{path} does not hold a service account token")
    return token


def _read_bounded(response: HTTPResponse) -> bytes:
    body = response.read(LONGEST_ANSWER_BYTES + 1)
    if len(body) > LONGEST_ANSWER_BYTES:
        raise SourceError(f"the API server's answer is longer than {LONGEST_ANSWER_BYTES >> 20} MiB")
    return body


def _refusal(url: str, path: str, response: HTTPResponse) -> SourceError:
    """Why the API server said no, and what would help."""
    status, said = response.status, _read_message(response)
    if status == 410:
        return GoneError(f"{url} no longer has what {path} continues from (410): {said}")
    if status == 401:
        return SourceError(f"{url} does not accept the service account token (401): {said}")
    if status == 403:
        return ObjectError(f"{url} forbids it (403): {said}; {_missing_rule(path)}", status=status)
    if 300 <= status < 400:
        return SourceError(f"{url} answered {path} with a redirect ({status}), which is never followed")
    if status in _OF_THE_OBJECT:
        return ObjectError(f"{url} answered {path} with {status}: {said}", status=status)
    return SourceError(f"{url} answered {path} with {status}: {said}")


def _missing_rule(path: str) -> str:
    """The RBAC rule that would have allowed this path."""
    if "/configmaps/" in path:
        return 'the service account needs a Role there with resources ["configmaps"], verbs ["get"]'
    return 'the service account needs a ClusterRole with resources ["pods"], verbs ["get", "list", "watch"]'


def _read_message(response: HTTPResponse) -> str:
    """The message of a Status object, or the start of whatever was sent instead."""
    body = response.read(4096)
    try:
        message = msgspec.json.decode(body, type=_Status).message or ""
    except (msgspec.MsgspecError, UnicodeDecodeError):
        message = body.decode("utf-8", "replace")
    return " ".join(message.split())[:300] or response.reason


def _explain(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
