"""`gpusteward mcp` as a process that an assistant starts: the official client, only JSON on standard output."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from mcp.client.stdio import StdioServerParameters

from gpusteward.cli.main import main
from gpusteward.questions.tools import TOOLS
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.mcp_clients import MODES, ask, list_calls
from tests.analyzer.api.sample_results import TRAINER, small_result
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.api.test_questions import check, with_questions

TOKEN = "viewer0123456789"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """/mcp of the analyzer is off: the command does not need it."""
    settings = with_questions(tokens=f"viewer: {TOKEN}", anonymous_reads="never", mcp=False)
    with running_api(small_result(), settings=settings, reclaim=FakeReclaim([TRAINER])) as running:
        yield running


def start(url: str, token: str = TOKEN) -> StdioServerParameters:
    command = ["-m", "gpusteward.cli.main", "mcp", "--server", url]
    return StdioServerParameters(command=sys.executable, args=command, env={"GPUSTEWARD_TOKEN": token})


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_gets_seven_answers(api: Api, mode: str):
    calls = list_calls("trainer")
    answers = [check(each) for each in ask(start(api.url), calls, mode=mode)]
    assert {name for name, _ in calls} == set(TOOLS)
    assert answers[0]["link"] == f"{api.url}/ui/#/overview"


@pytest.mark.slow
def test_what_is_wrong_with_the_server_is_the_answer(api: Api):
    (refused,) = ask(start(api.url, "wrong-token-0123456789"), [("cluster_summary", {})])
    (gone,) = ask(start("http://127.0.0.1:9"), [("cluster_summary", {})])
    assert (refused.is_error, gone.is_error) == (True, True)
    assert "rejected the token from GPUSTEWARD_TOKEN" in refused.text
    assert "cannot connect to the analyzer at http://127.0.0.1:9" in gone.text


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_an_older_client_gets_json_lines_and_the_end_of_its_input_is_the_end(api: Api, version: str):
    begin = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    parameters = start(api.url)
    process = subprocess.Popen(
        [parameters.command, *parameters.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("".join(json.dumps(each) + "\n" for each in messages))
        process.stdin.flush()
        begun, listed = (json.loads(process.stdout.readline())["result"] for _ in range(2))
        process.stdin.close()
        assert (process.stdout.read(), process.wait(20)) == ("", 0)
    assert (begun["protocolVersion"], len(listed["tools"])) == (version, 7)


def test_without_the_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.delitem(sys.modules, "gpusteward.questions.server", raising=False)
    assert main(["mcp"]) == 2
    assert "pip install 'gpusteward[mcp]'" in capsys.readouterr().err


def test_no_other_command_loads_it():
    script = (
        "import sys\nfrom gpusteward.cli.main import main\nmain(['help', 'mcp'])\n"
        "sys.exit(str({'mcp', 'mcp_types', 'pydantic'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr.strip(), "Model Context Protocol" in done.stdout) == ("", True)
