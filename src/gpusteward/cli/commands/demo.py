"""`gpusteward demo`: agent and analyzer on simulated nodes; `gpusteward demo load`: keep simulated GPUs of it busy."""

import json
import os
from collections.abc import Sequence

from gpusteward.cli import flags
from gpusteward.cli.api.client import Peer, UnreachableError, WholeResponse, make_client
from gpusteward.cli.commands.serve import build_settings_parser
from gpusteward.cli.output.tables import show_progress
from gpusteward.cli.output.terminal_text import clean
from gpusteward.cli.program import EXIT_OK, require_libraries
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Message
from gpusteward.local.demo_control import CONTROL_PATH, MAX_MINUTES, find_demos
from gpusteward.process_exit import exit_without_threads

LOAD_STARTED = Message(
    "{workload} keeps {gpus} busy at {share} % for {minutes} min.\n"
    "Within a minute: gpusteward explain {workload}, gpusteward top, gpusteward ps --node {node}",
    "{workload} 将使 {gpus} 保持 {share}% 的繁忙程度，持续 {minutes} 分钟。\n"
    "一分钟内可查看：gpusteward explain {workload}、gpusteward top、gpusteward ps --node {node}",
)
LOADED_GPU = Message("GPU {gpu} of {node}", "{node} 的 GPU {gpu}")
MORE_GPUS = Message("{gpus} and {count} more", "{gpus} 以及另外 {count} 张")

NODES, MAX_NODES = 40, 200
SEED = 7
LOAD = "load"


def build_parser() -> flags.FlagParser:
    parser = build_settings_parser(
        "demo",
        "Run the analyzer on simulated GPU nodes with three weeks of history.",
        without=("--config", "--prometheus-url"),
    )
    parser.add_argument(
        "--nodes",
        type=flags.integer_between(1, MAX_NODES),
        default=NODES,
        help=f"number of nodes, 1 to {MAX_NODES} (default {NODES})",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"seed of the simulation: each one is another cluster (default {SEED})"
    )
    parser.add_argument(
        "action", nargs="?", choices=(LOAD,), help="start a load in the running demo: gpusteward demo load --help"
    )
    return parser


def run(arguments: Sequence[str]) -> int:
    """Serve a simulated cluster until Ctrl-C. Raises ConfigurationError."""
    if arguments[:1] == [LOAD]:
        return run_load(arguments[1:])
    with require_libraries():
        from gpusteward.analyzer.settings.flags import flags_from
        from gpusteward.local.demo_settings import prepare_demo
    options = build_parser().parse(arguments)
    language = flags.language_of(options)
    title = Message("simulating three weeks of history", "正在模拟三周的历史数据").text(language)
    with prepare_demo(flags_from(options), language) as setup:
        with require_libraries():
            from gpusteward.local.demo import run_demo
        progress = show_progress(title, without_terminal=f"{title} ...")
        code = run_demo(setup, nodes=options.nodes, seed=options.seed, language=language, show_progress=progress)
    exit_without_threads(code)
    return code


SHARE, MINUTES = 80, 5
MAX_LISTED = 4


def build_load_parser() -> flags.FlagParser:
    parser = flags.make_parser("demo load", "Start a load on simulated GPUs of the demo that runs on this machine.")
    parser.add_argument(
        "--share",
        type=flags.integer_between(1, 100),
        default=SHARE,
        metavar="PERCENT",
        help=f"share of the time in which the GPU is busy, 1 to 100 (default {SHARE})",
    )
    parser.add_argument(
        "--minutes",
        type=flags.integer_between(1, MAX_MINUTES),
        default=MINUTES,
        help=f"duration of the load (default {MINUTES})",
    )
    parser.add_argument(
        "--workload",
        default="",
        metavar="WORKLOAD",
        help="load all GPUs of this workload (default: a new pod on a free GPU)",
    )
    flags.add_language_flag(parser)
    return parser


def run_load(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError if no demo is running."""
    options = build_load_parser().parse(arguments)
    language = flags.language_of(options)
    request = {"share_percent": options.share, "minutes": options.minutes, "workload": options.workload}
    response = _send(json.dumps(request).encode())
    started = json.loads(response.body)
    if response.status != 200:
        raise ConfigurationError(clean(started["error"]))
    gpus = [LOADED_GPU.text(language, gpu=each["gpu"], node=each["node"]) for each in started["gpus"]]
    listed = ", ".join(gpus[:MAX_LISTED])
    if len(gpus) > MAX_LISTED:
        listed = MORE_GPUS.text(language, gpus=listed, count=len(gpus) - MAX_LISTED)
    text = LOAD_STARTED.text(
        language,
        workload=f"{started['namespace']}/{started['kind']}/{started['name']}",
        gpus=listed,
        share=options.share,
        minutes=options.minutes,
        node=started["gpus"][0]["node"],
    )
    print(text)
    return EXIT_OK


def _send(body: bytes) -> WholeResponse:
    """To the demo at GPUSTEWARD_SERVER, or the latest one that is still running."""
    for demo in find_demos(os.environ.get(flags.SERVER_VARIABLE, "")):
        client = make_client(Peer.ANALYZER, demo.url, token=demo.token)
        try:
            return client.request(CONTROL_PATH, method="POST", body=body)
        except UnreachableError:
            continue
    raise SourceError("no demo of this user is running; start one with gpusteward demo, in another terminal")
