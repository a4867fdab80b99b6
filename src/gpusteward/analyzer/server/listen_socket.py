"""The socket that the analyzer listens on. Without its other libraries, so that a taken port is reported at once."""

import socket

from gpusteward.analyzer.settings.settings import ServerSettings
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.errors.os_errors import explain_os_error

BACKLOG = 512


def open_socket(settings: ServerSettings) -> socket.socket:
    """Raises ConfigurationError when the address cannot be listened on."""
    try:
        listening = _listen(*settings.listen)
        # Connections inherit it. Without it the end of a response waits 40 ms for the acknowledgement of its beginning.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConfigurationError(
            f"--address {settings.address!r}: cannot listen there: {explain_os_error(error)}; choose "
            "another with --address HOST:PORT"
        ) from error
    return listening


def _listen(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    family = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]  # noqa: S104 - as configured
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
