"""`gpusteward demo`: an analyzer on a simulated cluster with three weeks of history."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import yaml

from gpusteward.analyzer.app import Analyzer
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.server.serve import run_analyzer
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.core.messages import Language, Message
from gpusteward.local.demo_control import DemoAddress, write_control_file
from gpusteward.local.demo_servers import DemoInbox, DirectApi, serve_cluster, serve_fleet
from gpusteward.local.demo_settings import SCRAPE_TIMEOUT_SECONDS, DemoSetup, url_of
from gpusteward.local.history_seed import Advance, SeededHistory
from gpusteward.local.simulated_cluster import SimulatedCluster
from gpusteward.local.simulated_fleet import SERVERS, DemoLoads, SimulatedFleet, SimulatedServer
from gpusteward.logs import Log
from gpusteward.simulate.fleets import fleet as simulate_fleet
from gpusteward.simulate.nodes import SimulatedNode

DEMO_STARTED = Message(
    "Simulated cluster at {url}, also in a browser; stop it with Ctrl-C.\n"
    "In another terminal: export GPUSTEWARD_SERVER={url}\n"
    "then: gpusteward top, gpusteward idle, gpusteward plan, gpusteward report --since 7d, gpusteward demo load "
    "--share 80\n"
    "and for one of its nodes: gpusteward ps --node {node}, or from its agent: gpusteward ps --agent {agent_url}\n"
    "Within minutes idle workloads of student-projects are warned and suspended; notices follow here.",
    "模拟集群已启动：{url}，可在浏览器中打开；按 Ctrl-C 停止。\n"
    "在另一个终端中执行：export GPUSTEWARD_SERVER={url}\n"
    "然后执行：gpusteward top, gpusteward idle, gpusteward plan, gpusteward report --since 7d, "
    "gpusteward demo load --share 80\n"
    "查看其中一个节点：gpusteward ps --node {node}，或直接查询其 agent：gpusteward ps --agent {agent_url}\n"
    "几分钟内，student-projects 中空闲的工作负载会被警告并暂停；通知显示在下方。",
)

log = Log(__name__)

HISTORY_DAYS = 21


def run_demo(
    setup: DemoSetup, *, nodes: int, seed: int, language: Language, show_progress: AbstractContextManager[Advance]
) -> int:
    """Serve until a signal stops it. Raises ConfigurationError.

    `show_progress`: entered while the history is simulated.
    """
    fleet = SimulatedFleet(
        simulate_fleet(nodes, seed, demo_at=time.time()), ready_timeout_seconds=SCRAPE_TIMEOUT_SECONDS / 2
    )
    loads, cluster = DemoLoads(fleet), SimulatedCluster(fleet, clock=time.time)
    owners = ClusterOwners(DirectApi(cluster, url_of(setup.cluster_socket)))
    with serve_fleet(fleet, control=loads) as targets, serve_cluster(cluster, setup.cluster_socket, inbox=DemoInbox()):
        url, port = targets[0].removesuffix(f"/{fleet.nodes[0].name}/metrics"), setup.listening.getsockname()[1]
        servers = {f"{url}/{SERVERS}{pod}/metrics": one for pod, one in fleet.find_servers(time.time()).items()}
        named = [{"targets": [target], "labels": _name_pod(one)} for target, one in servers.items()]
        setup.targets_file.write_text(yaml.safe_dump([{"targets": targets}, *named]))
        write_control_file(setup.folder, DemoAddress(url, loads.token, port))
        with show_progress as advance:

            def advance_or_stop(done: int, total: int) -> None:
                setup.signals.check()
                advance(done, total)

            _write_history(fleet.nodes, setup.file.settings, until=time.time(), advance=advance_or_stop)
        return run_analyzer(
            setup.file,
            listening=setup.listening,
            owners=owners,
            prepare=lambda analyzer: _fill_window(fleet, analyzer, targets, servers, setup),
            announce=lambda url: print(
                DEMO_STARTED.text(
                    language, url=url, agent_url=targets[0].removesuffix("/metrics"), node=fleet.nodes[0].name
                ),
                flush=True,
            ),
        )


def _write_history(nodes: Sequence[SimulatedNode], settings: Settings, *, until: float, advance: Advance) -> None:
    engine = open_engine(settings.ledger.locate())
    try:
        create_tables(engine)
        SeededHistory(nodes, PriceList(settings.prices)).write(engine, days=HISTORY_DAYS, until=until, advance=advance)
    finally:
        engine.dispose()


def _name_pod(server: SimulatedServer) -> dict[str, str]:
    """The labels that tell the scraper whose requests these are."""
    return {"namespace": server.container.namespace, "pod": server.container.pod}


def _fill_window(
    fleet: SimulatedFleet,
    analyzer: Analyzer,
    targets: Sequence[str],
    servers: Mapping[str, SimulatedServer],
    setup: DemoSetup,
) -> None:
    """Ingest the samples of the last window, so that the first cycle already has verdicts."""
    source, settings = analyzer.source.source, analyzer.settings.current
    assert isinstance(source, ScrapeSource)
    step = settings.scrape.interval
    count = int(settings.prometheus.window_seconds / step) + 1
    now = time.time()
    for number in range(count, 0, -1):
        setup.signals.check()
        at = now - number * step
        for target, server in servers.items():
            source.ingest(target, server.render_metrics(), at, pod_labels=_name_pod(server))
        for node, target in zip(fleet.nodes, targets, strict=True):
            source.ingest(target, fleet.render_metrics(node.name, at), at, node=node.name)
    fleet.set_ready()
    log.info("window_filled", nodes=len(fleet.nodes), scrapes=count)
