"""Errors of the HTTP client core. No text contains a URL, a header value or a credential.

HttpError
├── ConfigurationFileError   a CA file or a token file cannot be used
├── InvalidRequestError      a header or a path that HTTP does not allow; nothing was sent
├── ConnectError             no connection
│   ├── ConnectTimeoutError
│   └── TlsError             the handshake failed, mostly because of a certificate
├── NotSentError             a request that must not be late: the server did not ask for its body in time
├── ConnectionLostError      the connection ended before the end of the response
│   └── NoResponseError      ... before its first byte
├── ResponseTimeoutError     no complete response in time
├── ResponseTooLargeError    the response, its headers or one of its lines exceeds a limit
├── ProtocolError            not HTTP, or an encoding that cannot be decoded
└── RequestCancelledError    the client was closed by another thread
"""

import ssl

from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages.errors import os_errors


class HttpError(SourceError):
    """A request that has no usable response. A response with an error status is not an HttpError."""


class ConfigurationFileError(HttpError):
    """A CA file or a token file that cannot be used."""


class InvalidRequestError(HttpError):
    """Nothing was sent."""


class ConnectError(HttpError):
    """No connection to the server or its proxy."""


class ConnectTimeoutError(ConnectError):
    """No connection in time."""


class TlsError(ConnectError):
    """The server's certificate is not trusted, or the handshake failed."""


class NotSentError(HttpError):
    """The body was not sent: it would have been later than the caller allows."""


class ConnectionLostError(HttpError):
    """The connection ended before the end of the response."""


class NoResponseError(ConnectionLostError):
    """The connection ended before the first byte of a response, as an idle connection does that the server closed."""


class ResponseTimeoutError(HttpError):
    """No complete response in time."""


class ResponseTooLargeError(HttpError):
    """More than the limit of the caller; the rest was not read."""


class ProtocolError(HttpError):
    """A response that cannot be understood."""


class RequestCancelledError(HttpError):
    """The client was closed while the request was under way, or before."""


def explain_os_error(error: OSError) -> Message | str:
    """The reason without paths and addresses, which may contain credentials."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", "") or getattr(error, "reason", "") or "handshake failed"
    return os_errors.explain_os_error(error)
