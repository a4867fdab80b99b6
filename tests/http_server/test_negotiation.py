"""`Accept` and `Accept-Encoding`."""

import pytest

from gpusteward.core.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from gpusteward.http_server.negotiation import accepts_gzip, choose_format, parse_accept

PROMETHEUS_2 = (  # what Prometheus 2.42 sends
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT_TYPE),
        ("*/*", TEXT_TYPE),
        ("application/openmetrics-text", OPENMETRICS_TYPE),
        ("application/openmetrics-text; version=0.0.1", OPENMETRICS_TYPE.replace("1.0.0", "0.0.1")),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", TEXT_TYPE),
        ("text/plain;q=0.9,application/openmetrics-text;q=0.8", TEXT_TYPE),
        ("application/openmetrics-text;q=0,text/html", TEXT_TYPE),
        (PROMETHEUS_2, OPENMETRICS_TYPE),
        (PROMETHEUS_3, OPENMETRICS_TYPE),
        ("application/vnd.google.protobuf;encoding=delimited;q=0.9," + PROMETHEUS_3, OPENMETRICS_TYPE),
        ("application/openmetrics-text;q=x;;=,,", TEXT_TYPE),
    ],
)
def test_the_format_of_the_highest_weight_is_chosen(accept: str, content_type: str) -> None:
    assert choose_format(accept) == content_type


@pytest.mark.parametrize(
    ("accept_encoding", "expected"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("*;q=0", False),
        ("identity;q=1, gzip;q=0.5", False),
        ("br", False),
    ],
)
def test_gzip_is_used_only_if_accepted(accept_encoding: str, expected: bool) -> None:
    assert accepts_gzip(accept_encoding) is expected


def test_a_header_that_is_too_long_counts_as_none():
    assert parse_accept("a," * 501) == []
    assert len(parse_accept("a," * 500)) == 500
