"""Write access to the Kubernetes API server: patches, creations and evictions. Only `analyzer.reclaim` imports this.

    WriteError              the server refused a write, and nothing has changed
    ├── ConflictError       409: the object has changed since it was read, or exists already
    ├── ReplacedError       422 on the uid: another object of the same name
    ├── ForbiddenError      403: a right is missing; the text names the rule
    ├── MissingError        404
    ├── BusyError           429: a PodDisruptionBudget, or the server's own limit; `retry_after_seconds`
    ├── LateError           it could not be sent before `send_before`
    └── RejectedError       400, 422 and others: admission, schema

A SourceError that is none of these leaves open whether the write has happened: the connection ended, or the time was
up. A dry run is a query parameter, since only there the audit log of the server shows it.

A write that must not be late has `send_before`, a time of the monotonic clock. Its body is sent when the server asks
for it (Expect: 100-continue), which it does after authentication, authorization and its own queue: a server that hung
until the client had left finds a request without a body, and refuses it. The write also carries the server's own time
limit (`timeout=5s`): one that stalls after that, for example in an admission webhook, ends with 504 and does not happen
later.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.http.client import Request, Response
from gpusteward.http.errors import NotSentError
from gpusteward.kubernetes.api import RESPONSE_LIMIT_BYTES, ApiServer, read_status
from gpusteward.messages.errors import kubernetes_errors as messages

Json = dict[str, Any]
FIELD_MANAGER = "gpusteward"
SERVER_SECONDS = 5
"""How long the server may take for a write that must not be late."""
ANSWER_SECONDS = 2.0
"""How much longer its answer is waited for."""
_ACCEPTED = (200, 201, 202)


class WriteError(SourceError):
    """The server refused a write: nothing has changed."""

    retry_after_seconds = 0.0


class ConflictError(WriteError):
    """409."""


class ReplacedError(WriteError):
    """The object of this name has another uid by now."""


class ForbiddenError(WriteError):
    """403."""


class MissingError(WriteError):
    """404."""


class BusyError(WriteError):
    """429."""


class LateError(WriteError):
    """It was not sent."""


class RejectedError(WriteError):
    """The request itself is refused."""


_BY_STATUS: Mapping[int, type[WriteError]] = {
    403: ForbiddenError,
    404: MissingError,
    409: ConflictError,
    429: BusyError,
}


class ApiWriter(ApiServer):
    """The same server with the same limits of time and size."""

    def patch(self, path: str, body: Json, *, dry_run: bool = False, send_before: float | None = None) -> Json:
        """Merge `body` into an object; the object as it is then. With `metadata.uid` and `metadata.resourceVersion` in
        it, only this very object is changed, and only if it is as it was read. Raises SourceError, WriteError."""
        media = "application/merge-patch+json"
        return self._write("PATCH", path, body, media=media, dry_run=dry_run, send_before=send_before)

    def patch_json(self, path: str, operations: Sequence[Json]) -> Json:
        """A JSON patch (RFC 6902); the object as it is then. Raises SourceError, WriteError: RejectedError also where a
        `test` among the operations fails."""
        media = "application/json-patch+json"
        return self._write("PATCH", path, list(operations), media=media, dry_run=False, send_before=None)

    def create(self, path: str, body: Json, *, dry_run: bool = False, send_before: float | None = None) -> Json:
        """Raises SourceError, WriteError: ConflictError if there is an object of this name."""
        return self._write("POST", path, body, media="application/json", dry_run=dry_run, send_before=send_before)

    def evict(
        self, namespace: str, pod: str, *, uid: str, dry_run: bool = False, send_before: float | None = None
    ) -> None:
        """Read the pod before: a refused uid still uses up its PodDisruptionBudget. Raises SourceError, WriteError:
        BusyError if a budget does not allow it."""
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self.create(path, body, dry_run=dry_run, send_before=send_before)

    def _write(
        self, method: str, path: str, body: Json | list[Json], *, media: str, dry_run: bool, send_before: float | None
    ) -> Json:
        query = f"?fieldManager={FIELD_MANAGER}" + ("&dryRun=All" if dry_run else "")
        seconds = self._timeout_seconds
        if send_before is not None:
            query += f"&timeout={SERVER_SECONDS}s"
            seconds = max(0.0, send_before - time.monotonic()) + SERVER_SECONDS + ANSWER_SECONDS
        read = self._make_request(path + query)
        headers = {**read.headers, "Content-Type": media}
        request = Request(method, path + query, body=msgspec.json.encode(body), headers=headers)
        with (
            self._open_client() as client,
            self._translate_errors(path),
            _report_late(path),
            client.send(
                request, timeout_seconds=seconds, limit_bytes=RESPONSE_LIMIT_BYTES, send_before=send_before
            ) as response,
        ):
            if response.status not in _ACCEPTED:
                self._refuse(method, path, response)
            answer = response.read()
        try:
            return msgspec.json.decode(answer, type=Json)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SourceError(messages.NOT_DECODED, url=self.url, path=path, reason=error) from error

    def _refuse(self, method: str, path: str, response: Response) -> None:
        status, said = response.status, read_status(response)
        causes = (said.details or {}).get("causes") or ()
        is_replaced = status == 422 and any(
            isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes
        )
        fields: dict[str, object] = {"path": path, "status": status, "reason": said.message}
        if status >= 500:  # it may have been stored: a proxy reports its own time limit this way
            raise SourceError(messages.WRITE_FAILED, **fields)
        if status == 403:
            raise ForbiddenError(messages.WRITE_FORBIDDEN, **fields, verb="create" if method == "POST" else "patch")
        kind = ReplacedError if is_replaced else _BY_STATUS.get(status, RejectedError)
        message: Message = messages.WRITE_REPLACED if is_replaced else messages.WRITE_FAILED
        error = kind(message, **fields)
        error.retry_after_seconds = response.retry_after_seconds
        raise error


@contextlib.contextmanager
def _report_late(path: str) -> Iterator[None]:
    try:
        yield
    except NotSentError as error:
        raise LateError(messages.WRITE_LATE, path=path) from error
