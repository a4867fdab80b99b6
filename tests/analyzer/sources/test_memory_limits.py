"""One budget of memory, the limits that follow from it, and what fits into them."""

import asyncio
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import pytest

from bench.scrape_nodes import GOLDEN, rename
from gpusteward.analyzer.settings.settings import MemorySettings
from gpusteward.analyzer.sources.engine.decode import decode_pieces, decode_plain
from gpusteward.analyzer.sources.memory_limits import (
    DEFAULT_LIMITS,
    MIB,
    TARGET_SHARE,
    MemoryLimits,
)
from gpusteward.analyzer.sources.promql.query_runner import DeviceIndex, HolderIndex, RowLimit
from gpusteward.analyzer.sources.scrape.page_parser import NO_MEMORY, split_lines
from gpusteward.analyzer.sources.scrape.sample_store import Kept, SampleStore, StoreOptions
from gpusteward.analyzer.sources.usage.query_results import MAX_LABEL_LENGTH, DeviceKey, HolderDetails, HolderKey
from gpusteward.analyzer.sources.usage.schemes import DCGM
from gpusteward.core.errors import SourceError
from gpusteward.http.async_connection import AsyncConnection, ReceivedBytes
from gpusteward.http.errors import HttpError
from gpusteward.process_memory import read_memory_limit
from tests.analyzer.sources.scrape.test_page_parser import AT, page

HOLDER = HolderKey("UUID", "GPU_I_ID", "namespace", "pod", "container")
DETAILS = HolderDetails("Hostname", "gpu", "modelName", "job")
SMALL = MemoryLimits.of_budget(192 * MIB)


def label_text(number: int, *, pod_length: int = 40) -> bytes:
    """About as long as those of dcgm-exporter."""
    pod = f"{number:x}".rjust(pod_length, "p")
    return (
        f'{{"Hostname":"gpu-node-{number // 8:05}","UUID":"GPU-{number:08x}-aaaa-bbbb-cccc-0123456789ab",'
        f'"container":"main","gpu":"{number % 8}","modelName":"NVIDIA H100 80GB HBM3","namespace":"team-{number % 50}",'
        f'"pod":"{pod}","job":"dcgm-exporter"}}'
    ).encode()


def test_the_default_is_the_limit_of_the_container_and_without_one_that_of_the_manifest(tmp_path: Path):
    assert MemorySettings(budget_bytes=1 << 30).limits == MemoryLimits.of_budget(1 << 30)
    (tmp_path / "cgroup").write_text("0::/kubepods/pod1/main\n")
    where = {"proc": tmp_path / "cgroup", "root": tmp_path}
    assert read_memory_limit(**where) is None
    folder = tmp_path / "kubepods/pod1/main"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text("max\n")
    assert read_memory_limit(**where) is None
    (folder.parent / "memory.max").write_text(f"{600 * MIB}\n")
    assert read_memory_limit(**where) == 600 * MIB
    (folder / "memory.max").write_text(f"{500 * MIB}\n")
    assert read_memory_limit(**where) == 500 * MIB
    (tmp_path / "cgroup").write_text("5:memory:/kubepods/pod1/main\n0::/\n")
    old = tmp_path / "memory"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert read_memory_limit(**where) is None
    (old / "memory.limit_in_bytes").write_text(f"{400 * MIB}\n")
    assert read_memory_limit(**where) == 400 * MIB


def test_the_shares_fit_into_the_budget():
    for budget in (192 * MIB, 512 * MIB, 4096 * MIB):
        limits = MemoryLimits.of_budget(budget)
        rest = budget - 128 * MIB
        # A holder with its details was measured to take 2,300 bytes, labels up to twice their text, and a row that is
        # read 0.65 bytes per byte of its text.
        assert 1_150 * limits.rows + 3 * limits.response * 0.65 <= rest
        assert 18 * limits.whole_response <= 0.3 * rest
        # A series was measured to take 600 bytes apart from its values, whose rings have a ninth more room.
        assert 600 * limits.series + 9 / 8 * limits.window_bytes + limits.label_bytes + limits.pages <= rest


def add_rows(limits: MemoryLimits, rows: int, *, pod_length: int = 40) -> tuple[RowLimit, RowLimit]:
    of_holders, of_devices = RowLimit(limits), RowLimit(limits)
    holders, devices = HolderIndex(HOLDER, of_holders), DeviceIndex(DeviceKey("UUID", "GPU_I_ID"), of_devices)
    for first in range(0, rows, 1000):
        texts = [label_text(number, pod_length=pod_length) for number in range(first, min(first + 1000, rows))]
        holders.read_details(texts, DETAILS)
        holders.add_texts(texts)
        devices.add_texts(texts)
    return of_holders, of_devices


def test_the_default_budget_holds_fifty_thousand_gpus_of_an_engine():
    for limit in add_rows(DEFAULT_LIMITS, 5_000):
        assert 10 * limit.rows < DEFAULT_LIMITS.rows
        assert 10 * limit.label_bytes < DEFAULT_LIMITS.row_label_bytes


@pytest.mark.parametrize("pod_length", [5, 4_000], ids=["many rows", "long labels"])
def test_rows_beyond_the_budget_are_refused_with_the_setting_that_helps(pod_length: int):
    with pytest.raises(SourceError, match=r"raise memory\.budget_bytes .* from 201326592 to 402653184"):
        add_rows(SMALL, 60_000, pod_length=pod_length)


def test_the_rows_of_other_indexes_count_too():
    limit = RowLimit(SMALL)
    limit.add(SMALL.rows, ())
    with pytest.raises(SourceError):
        HolderIndex(HOLDER, limit).add_texts([label_text(1)])


def test_labels_longer_than_names_are_cut_off_whoever_sends_them():
    holders = HolderIndex(HOLDER)
    holders.add_texts([label_text(1, pod_length=1000)])
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60))
    store.ingest("a", page("p" * 1000).encode(), AT)
    [scraped] = store.read_window(AT, 15).rows.holders[DCGM].keys
    assert {len(key.pod) for key in (*holders.keys, scraped)} == {MAX_LABEL_LENGTH}


def test_texts_of_dropped_targets_are_dropped_before_they_take_much_of_the_store():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=SMALL))
    for number in range(20):
        store.ingest("a", "".join(page(f"{number}-{pod}") for pod in range(200)).encode(), AT)
        store.drop("a")
        store.read_window(AT, 15)
    with store.lock_targets() as (series_labels, _):
        assert series_labels.interpreted <= SMALL.series // 8
        assert sum(map(len, series_labels.holders.values())) < 20 * 200


def test_texts_of_ended_series_are_dropped_before_they_take_much_of_the_store():
    """Few series with long labels, within all limits at any time."""
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=SMALL))
    for number in range(1_000):
        long = "".join(f',label_{each}="{each:x<2000}"' for each in range(6)).encode()
        text = page(f"pod-{number}").encode().replace(b"}", long + b"}")
        store.ingest("a", text, AT + 15 * number)
        store.read_window(AT + 15 * number, 15)
        with store.lock_targets() as (series_labels, _):
            assert series_labels.interpreted_bytes <= store.kept.label_bytes + SMALL.label_bytes // 16
    assert series_labels.interpreted < 1_000


def test_texts_count_with_the_memory_that_python_keeps_them_in():
    counted = []
    for letter in ("a", "\N{GRINNING FACE}"):
        store = SampleStore(StoreOptions(interval=15, keep_seconds=60))
        store.ingest("a", page(letter + "p" * 200).encode(), AT)
        counted.append(store.kept.label_bytes)
    assert counted[1] > 4 * counted[0]


def test_what_cannot_be_divided_into_rows_is_refused_before_it_is_decoded():
    endless = (part for part in [b'{"status":"success","data":{"result":[{"metric":{"a":"', *[b"x" * (1 << 18)] * 20])
    with pytest.raises(SourceError, match="a part of the response is larger"):
        list(decode_pieces(endless))
    with pytest.raises(SourceError, match="a part of the response is larger"):
        decode_plain(b'{"status":"success","data":{"a":[' + b"[]," * (1 << 20))


def test_lines_are_the_same_however_a_page_is_divided():
    long = b"x" * 600_000
    for text in (b"", b"a", b"a\n", b"\n\n", b"a\n\nb\nc", b"a\n" + long + b"\nb\n", long, b"ab\n" * 200_000):
        assert list(split_lines(text)) == text.split(b"\n")[:-1]


def fill(store: SampleStore, target: str, series: int, *, at: float = AT) -> dict[str, int]:
    """The errors of a target with so many series."""
    store.ingest(target, make_page(series).replace(b"?", target.encode()), at)
    return dict(store.describe_target(target).error_counts)


@cache
def make_page(series: int) -> bytes:
    """A question mark stands for the target."""
    return "".join(page(f"?-{number}", UUID=f"?-{number}") for number in range(series // 2)).encode()


def test_the_default_budget_holds_a_thousand_scraped_nodes_of_eight_gpus():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=3600))
    for node in range(10):
        store.ingest(f"node-{node}", rename(GOLDEN.read_bytes(), node), AT)
    limits = DEFAULT_LIMITS
    most = Kept(limits.series, limits.label_bytes, limits.window_bytes)
    assert 100 * store.kept.find_share(most) < 1


def test_series_beyond_the_budget_are_left_out_and_counted():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=3600, limits=SMALL))
    errors = fill(store, "a", 20_000)
    assert set(errors) == {NO_MEMORY}
    assert store.series <= SMALL.series // TARGET_SHARE


def test_a_target_that_needs_little_finds_room_however_many_hostile_ones_came_first():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=3600, limits=SMALL))
    for number in range(40):
        fill(store, f"hostile-{number}", 20_000)
    assert fill(store, "honest", 200) == {}
    assert store.describe_target("honest").series == 200


def test_targets_of_the_same_size_do_not_displace_each_other():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=3600, limits=SMALL))
    for number in range(60):
        fill(store, f"node-{number}", 1_000)
    assert store.describe_target("node-0").series == 1_000
    assert store.describe_target("node-59").error_counts[NO_MEMORY] == 1_000


def test_the_largest_of_many_responses_is_refused():
    async def receive() -> list[str]:
        loop = asyncio.get_running_loop()
        shared = ReceivedBytes(1_000_000)

        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            size = int((await reader.readuntil(b"\r\n\r\n")).split()[1][1:])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            with closing(writer), suppress(ConnectionError):
                for _ in range(10):
                    writer.write(b"x" * (size // 10))
                    await writer.drain()
                    await asyncio.sleep(0.01)

        async def fetch(port: int, size: int) -> str:
            _, connection = await loop.create_connection(
                lambda: AsyncConnection(limit_bytes=10_000_000, received=shared), "127.0.0.1", port
            )
            try:
                response = await connection.get(f"/{size}", {})
                return str(sum(map(len, response.chunks)))
            except HttpError as error:
                return str(error)
            finally:
                connection.close()

        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        got = await asyncio.gather(*(fetch(port, size) for size in (2_000_000, 90_000, 1_500_000, 80_000)))
        again = await fetch(port, 900_000)
        server.close()
        await asyncio.sleep(0.05)  # until the connections are closed
        return [*got, again]

    large, small, other, tiny, again = asyncio.run(receive())
    assert (small, tiny, again) == ("90000", "80000", "900000")
    assert "and this is the largest" in large
    assert "and this is the largest" in other
