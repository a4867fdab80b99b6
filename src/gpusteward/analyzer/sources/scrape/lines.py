"""A page -> values by row. A line seen before costs a look into a dictionary and a number; a malformed one only itself.

What is left of a line without its value is known by its hash: kept as texts, the lines of a thousand nodes would be
80 MB. Python's hash of bytes is keyed anew at every start, so nobody can aim for a collision.
"""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from gpusteward.analyzer.sources.scrape.labels import parse_labels

LONGEST_LINE = 16_384
LONGEST_EXAMPLE = 120
LONGEST_AGE_SECONDS = 300.0
"""A sample older than this is not about now, whatever its exporter says: Prometheus looks no further back either."""

IGNORED = -1  # the row of a line that nobody asks for

NOT_A_NUMBER = "value is not a number"
NOT_FINITE = "value is NaN, infinite or beyond all measure"
TOO_OLD = "timestamp is not of this scrape"
NO_LABELS = "labels cannot be read"
TOO_LONG = "line is too long"
CUT_OFF = "page ends in the middle of a line"
DUPLICATE = "series is on the page twice"
TOO_MANY = "too many series; raise scrape.target_series_limit or scrape.series_limit"
TOO_MUCH_TEXT = "labels are too long together; raise scrape.target_label_limit_bytes"


@dataclass
class Faults:
    """Lines that were left out, by reason, each with the last example."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def note(self, reason: str, line: bytes = b"", *, times: int = 1) -> None:
        self.counts[reason] += times
        if line:
            name, _, rest = line.partition(b"{")
            value = rest.rpartition(b"}")[2]
            self.examples[reason] = (name + value)[:LONGEST_EXAMPLE].decode("utf-8", "replace")


@dataclass(slots=True)
class Scanned:
    """What a page says of series that are known, and the lines of those that are not."""

    rows: list[int]
    values: list[float]
    strangers: list[bytes]


def scan(page: bytes, known: Mapping[int, int], wanted: Container[bytes], *, faults: Faults, at: float) -> Scanned:
    """Everything wanted on a page."""
    rows: list[int] = []
    values: list[float] = []
    strangers: list[bytes] = []
    find_row, add_row, add_value = known.get, rows.append, values.append
    *whole, rest = page.split(b"\n")
    if rest.strip() and not rest.startswith(b"#"):  # of its number, digits may be missing
        faults.note(CUT_OFF, rest[:LONGEST_EXAMPLE])
    for line in whole:
        if line[: line.find(b"{")] not in wanted:
            continue
        end = line.rfind(b"} ")
        row = find_row(hash(line[:end]))
        if row is None:
            strangers.append(line)
            continue
        if row == IGNORED:
            continue
        try:
            value = float(line[end + 2 :])
        except ValueError:
            odd = read_odd_value(line, end, faults=faults, at=at)
            if odd is None:
                continue
            value = odd
        add_row(row)
        add_value(value)
    return Scanned(rows, values, strangers)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A line that was not seen before."""

    line: bytes
    name: bytes
    labels: dict[str, str]
    end: int  # of the labels

    @property
    def key(self) -> int:
        return hash(self.line[: self.end])


def read_stranger(line: bytes, *, faults: Faults) -> Stranger | None:
    """Take a line apart; None where that is not possible, which is noted."""
    if len(line) > LONGEST_LINE:
        faults.note(TOO_LONG, line[:LONGEST_EXAMPLE])
        return None
    start, end = line.find(b"{"), line.rfind(b"} ")
    try:
        return Stranger(line, line[:start], parse_labels(line[start + 1 : end] if end > start else b"?"), end)
    except ValueError:  # also of what is not UTF-8
        faults.note(NO_LABELS, line)
        return None


def read_value(line: bytes, end: int, *, faults: Faults, at: float) -> float | None:
    """The number behind the labels; None where there is none, which is noted."""
    try:
        return float(line[end + 2 :])
    except ValueError:
        return read_odd_value(line, end, faults=faults, at=at)


def read_odd_value(line: bytes, end: int, *, faults: Faults, at: float) -> float | None:
    """A value with a timestamp behind it; anything else is noted."""
    parts = line[end + 2 :].split()
    try:
        value, moment = map(float, parts)
    except ValueError:
        faults.note(NOT_A_NUMBER, line)
        return None
    if abs(at - moment / 1000) > LONGEST_AGE_SECONDS:
        faults.note(TOO_OLD, line)
        return None
    return value
