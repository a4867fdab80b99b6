"""`python -m bench.scrape_server NODES`: serves the pages of all nodes; prints its port.

A node is a path: /17/metrics. Pages are packed beforehand, so that serving costs next to nothing.
"""

import asyncio
import sys

from bench.scrape_pages import pack_pages

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"


class Nodes(asyncio.Protocol):
    """One connection of a scraper."""

    pages: list[tuple[bytes, ...]]

    def __init__(self, pages: list[tuple[bytes, ...]]) -> None:
        self._pages = pages
        self._served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A request fits into one packet; only its path matters."""
        node = int(data.split(b"/", 2)[1])
        variants = self._pages[node]
        page = variants[self._served % len(variants)]
        self._served += 1
        self._transport.write(_HEAD % len(page) + page)


async def serve(nodes: int) -> None:
    pages = list(pack_pages(nodes))
    server = await asyncio.get_running_loop().create_server(lambda: Nodes(pages), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
