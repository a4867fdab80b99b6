"""`gpusteward top` with failing servers, many GPUs and hostile names."""

import os
import pty
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from fcntl import ioctl

import pytest

from gpusteward.cli.commands import top
from gpusteward.cli.main import main
from gpusteward.core.node.containers import Workload
from tests.agent.test_agent_process import free_port
from tests.analyzer.api.sample_results import hold, small_result
from tests.analyzer.api.server import Api, make_result, running_api
from tests.analyzer.usage_tables import large_table, resting, table_of
from tests.cli.screens import app_of, read_screen, run, until, until_seen, watching

pytestmark = pytest.mark.slow


def test_an_unreachable_server_is_reported_on_the_screen() -> None:
    async def watch() -> None:
        async with watching("--server", f"http://127.0.0.1:{free_port()}", "--refresh", "0.1") as pilot:
            await until_seen(pilot, "no data: cannot connect to the analyzer")
            assert app_of(pilot).is_running

    run(watch())


class Proxy:
    """Forwards to an analyzer; while it is closed, it drops connections."""

    def __init__(self, url: str) -> None:
        self.is_open = True
        self._target = url.removeprefix("http://").partition(":")[::2]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                if self.is_open:
                    self._forward(connection)

    def _forward(self, connection: socket.socket) -> None:
        """One request: the client sends one per connection."""
        with socket.create_connection((self._target[0], int(self._target[1])), timeout=10) as server:
            server.sendall(connection.recv(65536).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            while chunk := server.recv(65536):
                connection.sendall(chunk)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def test_the_rows_stay_while_the_server_is_unreachable() -> None:
    async def watch(proxy: Proxy) -> None:
        async with watching("--server", proxy.url, "--refresh", "0.1") as pilot:
            await until_seen(pilot, "vision/Job/trainer", "analyzer healthy")
            proxy.is_open = False
            seen = await until_seen(pilot, "no data: ")
            assert "vision/Job/trainer" in seen, "the last rows stay"
            proxy.is_open = True
            await until_seen(pilot, "analyzer healthy")

    with running_api(small_result(at=time.time())) as api:
        proxy = Proxy(api.url)
        try:
            run(watch(proxy))
        finally:
            proxy.close()


def test_a_hanging_server_does_not_block_the_screen() -> None:
    async def watch(url: str) -> None:
        app = top.make_app(top.build_parser().parse(["--server", url, "--timeout", "3600"]))
        async with app.run_test(size=(80, 24)) as pilot:
            await until_seen(pilot, "reading ...")
            await pilot.press("question_mark")
            await until_seen(pilot, "this help")
            await pilot.press("escape", "q")
            await until(pilot, lambda: not app.is_running, seconds=5)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        run(watch(f"http://127.0.0.1:{listener.getsockname()[1]}"))


def test_names_are_never_interpreted_as_markup_or_escapes() -> None:
    owner = Workload("Job", "[red]团队[bold]", "a[bold]\x1b[31mb\u202e")
    held = [hold("GPU-[x]", owner, namespace=owner.namespace, pod="[link=http://evil]p[/link]")]
    result = make_result(table_of(resting(), allocations=held, at=time.time()))

    async def watch(url: str) -> None:
        async with watching("--server", url, size=(140, 40)) as pilot:
            seen = await until_seen(pilot, "[red]团队[bold]", "a[bold]�[31mb�")
            assert "\x1b" not in seen
            await pilot.press("1")
            await until_seen(pilot, "[link=http://evil]p[/link]")
            await pilot.press("enter")
            await until_seen(pilot, "a[bold]�[31mb�", "GPU-[x]")

    with running_api(result) as api:
        run(watch(api.url))


def test_of_fifty_thousand_gpus_only_the_shown_rows_are_read() -> None:
    result = make_result(large_table(50_000, at=time.time()))

    async def watch(url: str) -> None:
        async with watching("--server", url, "--view", "gpus") as pilot:
            app = app_of(pilot)
            await until_seen(pilot, "first 100 of 50000 rows")
            await pilot.press("G")
            await until_seen(pilot, "first 200 of 50000 rows")
            for _ in range(12):
                await pilot.press("pagedown")
            await until(pilot, lambda: len(app.table.items) >= 300)
            assert len(app.table.items) <= 2000
            await pilot.press("slash", *"GPU-00049999", "enter")
            await until_seen(pilot, "1 row", "node-6249")

    with running_api(result) as api:
        run(watch(api.url))


def test_the_cursor_stays_on_its_row_after_a_refresh() -> None:
    result = make_result(large_table(2_000, at=time.time()))

    async def watch(api: Api) -> None:
        async with watching("--server", api.url, "--view", "workloads") as pilot:
            app = app_of(pilot)
            await pilot.press(*["j"] * 30)
            key = app.table.current_key
            before = read_screen(app)
            api.publish(make_result(large_table(2_000, at=time.time() + 1), number=2))
            await pilot.press("r")
            await until(pilot, lambda: app.listing and app.listing.at and app.listing.at > result.at)
            assert app.table.current_key == key
            assert read_screen(app).splitlines()[4:] == before.splitlines()[4:]

    with running_api(result) as api:
        run(watch(api))


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_without_a_terminal_the_view_is_printed_once(
    output: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--server", analyzer.url, "-o", output, "--view", "gpus"]) == 0
    assert "GPU-a" in capsys.readouterr().out or output == "table"
    assert main(["top", "--server", analyzer.url]) == 0
    assert "Job/trainer" in capsys.readouterr().out


def test_agent_and_server_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--agent", "a:1", "--server", "b:1", "-o", "json"]) == 2
    assert "cannot be used together" in capsys.readouterr().err


def test_a_missing_textual_is_reported_with_the_extra() -> None:
    program = (
        "import sys\nsys.modules['textual'] = None\nfrom gpusteward.cli.commands import top\n"
        "from gpusteward.core.errors import ConfigurationError\n"
        "try:\n    top.make_app(top.build_parser().parse([]))\n"
        "except ConfigurationError as error:\n    sys.exit(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "'textual' is not installed: pip install gpusteward\n"


def test_it_runs_on_a_real_terminal_and_quits_with_q(analyzer: Api) -> None:
    """A plain terminal of 80 columns, 16 colours, as over ssh."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "gpusteward.cli.main", "top", "--server", analyzer.url]
    env = {**os.environ, "TERM": "xterm", "COLORTERM": ""}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    try:
        seen = read_until(master, b"vision/Job/trainer")
        assert b"38;2;" not in seen, "no colours that a plain terminal does not have"
        os.write(master, b"q")
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                with suppress(OSError):  # it has exited and closed its side of the terminal
                    os.read(master, 65536)
        assert process.poll() == 0
    finally:
        process.kill()
        process.wait(10)
        os.close(master)


def read_until(master: int, wanted: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + 30
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 65536)
    return seen
