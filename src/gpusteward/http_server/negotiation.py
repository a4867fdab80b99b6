"""Content negotiation: `Accept` and `Accept-Encoding` headers -> format and encoding of the response.

As in Prometheus' client libraries: the format with the highest weight wins, the first of equals. A client that accepts
no supported format gets plain text, which is more useful to a scraper than an error.
"""

from functools import lru_cache
from typing import NamedTuple

from gpusteward.core.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from gpusteward.http_server.limits import LONGEST_HEADER

_OPENMETRICS_VERSIONS = {
    "": OPENMETRICS_TYPE,
    "1.0.0": OPENMETRICS_TYPE,
    "0.0.1": OPENMETRICS_TYPE.replace("1.0.0", "0.0.1"),
}


class AcceptItem(NamedTuple):
    """One element of an `Accept` or `Accept-Encoding` header."""

    name: str
    parameters: dict[str, str]
    weight: float


@lru_cache(maxsize=32)  # a node has a handful of scrapers, each of which always sends the same header
def choose_format(accept: str) -> str:
    """The content type of the response."""
    items = [item for item in parse_accept(accept) if item.weight > 0]
    for item in sorted(items, key=lambda item: -item.weight):
        if item.name in ("text/plain", "text/*", "*/*"):
            return TEXT_TYPE
        version = item.parameters.get("version", "")
        if item.name == "application/openmetrics-text" and version in _OPENMETRICS_VERSIONS:
            return _OPENMETRICS_VERSIONS[version]
    return TEXT_TYPE


@lru_cache(maxsize=32)
def accepts_gzip(accept_encoding: str) -> bool:
    """Whether gzip is accepted with at least the weight of no encoding."""
    weights = {item.name: item.weight for item in parse_accept(accept_encoding)}
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def parse_accept(header: str) -> list[AcceptItem]:
    """Parse `a/b;version=1;q=0.5, c/d` into items, in order; an invalid weight counts as 0, a long header as none."""
    items: list[AcceptItem] = []
    if len(header) > LONGEST_HEADER:
        return items
    for element in header.lower().split(","):
        name, *rest = (part.strip() for part in element.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
        if name:
            items.append(AcceptItem(name, parameters, _weight(parameters.pop("q", "1"))))
    return items


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
