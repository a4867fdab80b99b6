"""The HEALTHCHECK of the images: whether /livez on this port of the container responds with 200. Standard library only.

python healthcheck.py 9400
"""

import http.client
import ssl
import sys

TIMEOUT_SECONDS = 4


def is_alive(port: int) -> bool:
    """With TLS the certificate is not checked: the server is this container."""
    unverified = ssl._create_unverified_context()  # noqa: S323
    connections = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS),
        http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS, context=unverified),
    )
    return any(_responds(each) for each in connections)


def _responds(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not is_alive(int(sys.argv[1])))
