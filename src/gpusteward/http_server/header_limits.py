"""How long a header may be that is interpreted here. Checked before anything reads it; what nobody reads may be longer,
up to the limit of the whole head."""

from collections.abc import Iterable

LONGEST_HEADER = 1000
"""Characters. Browsers and scrapers send up to about 400."""
LONGEST_CREDENTIALS = 8 * 1024
"""Characters: a token that lists the groups of a person is that long."""

CREDENTIALS = frozenset({"authorization", "x-gpusteward-authorization"})
INTERPRETED = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "if-none-match"),
        *("connection", "content-length", "content-type", "expect", "transfer-encoding", "upgrade"),
        *("host", "origin", "referer", "sec-fetch-site", "x-gpusteward-csrf"),
        *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"),
    }
)


def find_long_header(headers: Iterable[tuple[str, str]]) -> str:
    """The name of a header that is too long; empty: there is none. `headers`: names in lower case."""
    for name, value in headers:
        longest = LONGEST_CREDENTIALS if name in CREDENTIALS else LONGEST_HEADER
        if len(value) > longest and (name in INTERPRETED or name in CREDENTIALS):
            return name
    return ""
