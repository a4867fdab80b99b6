"""`Accept` and `Accept-Encoding` -> what to answer with. A scraper that wants nothing we have gets plain text."""

from functools import lru_cache

from gpusteward.core.exposition import OPENMETRICS_TYPE, TEXT_TYPE

_OFFERED = {"application/openmetrics-text": OPENMETRICS_TYPE, "text/plain": TEXT_TYPE, "text/*": TEXT_TYPE}
_VERSIONS = ("", "1.0.0")  # of OpenMetrics; whoever insists on another gets text


@lru_cache(maxsize=64)
def choose_format(accept: str) -> str:
    """The content type of the metrics page: the offered one of the highest weight, the first of equals."""
    wishes = [(name, parameters, weight) for name, parameters, weight in parse_wishes(accept) if weight > 0]
    for name, parameters, _ in sorted(wishes, key=lambda wish: -wish[2]):
        chosen = _OFFERED.get(name, TEXT_TYPE if name == "*/*" else "")
        if chosen and (chosen == TEXT_TYPE or parameters.get("version", "") in _VERSIONS):
            return chosen
    return TEXT_TYPE


@lru_cache(maxsize=64)
def accepts_gzip(accept_encoding: str) -> bool:
    """Whether gzip is allowed, and not liked less than no encoding."""
    weights = {name: weight for name, _, weight in parse_wishes(accept_encoding)}
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def parse_wishes(header: str) -> list[tuple[str, dict[str, str], float]]:
    """`a/b;version=1;q=0.5, c/d` -> names, parameters and weights, in order; an unreadable weight is 0."""
    wishes = []
    for element in header.lower().split(","):
        name, *rest = (part.strip() for part in element.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
        if name:
            wishes.append((name, parameters, _weight(parameters.pop("q", "1"))))
    return wishes


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
