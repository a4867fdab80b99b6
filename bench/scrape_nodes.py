"""`python -m bench.scrape_nodes NODES`: serves the pages of many nodes, cheaply; prints its port.

They are the agent's golden page of eight GPUs, under other names and with other values, packed beforehand, so that
serving costs next to nothing.
"""

import asyncio
import gzip
import re
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from random import Random

from bench.programs import serve_pages

GOLDEN = Path(__file__).parents[1] / "tests/agent/golden/exclusive.prom"
GPUS_PER_NODE = 8
VARIANTS = 3
"""The number of pages per node, served in turn: values change, series stay."""
_RATIO = re.compile(rb"(\w*_ratio|DCGM_FI_\w*_UTIL)\{")


def read_variants(seed: int = 0) -> list[bytes]:
    """The golden page with values a little lower, several times."""
    golden = GOLDEN.read_bytes()
    return [_vary(golden, Random(seed + number)) for number in range(VARIANTS)]


def rename(page: bytes, node: int) -> bytes:
    """The page of another node: its own name, devices and pods."""
    named = page.replace(b'"node-a"', b'"node-%05d"' % node).replace(b"-aaaa-bbbb-", b"-%04x-bbbb-" % node)
    return named.replace(b'",container="', b'-%05d",container="' % node)


def pack_pages(nodes: int) -> Iterator[tuple[bytes, ...]]:
    """The variants of every node, packed as the agent packs them."""
    variants = read_variants()
    for node in range(nodes):
        yield tuple(gzip.compress(rename(page, node), compresslevel=1, mtime=0) for page in variants)


def _vary(page: bytes, chance: Random) -> bytes:
    lines = page.split(b"\n")
    return b"\n".join(_lower(line, chance) if _RATIO.match(line) else line for line in lines)


def _lower(line: bytes, chance: Random) -> bytes:
    labels, value = line.rsplit(b" ", 1)
    return b"%s %.4g" % (labels, float(value) * chance.uniform(0.9, 1))


def main() -> None:
    pages = [cycle(variants) for variants in pack_pages(int(sys.argv[1]))]
    asyncio.run(serve_pages(lambda node: next(pages[int(node)])))


if __name__ == "__main__":
    main()
