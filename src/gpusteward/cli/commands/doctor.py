"""`gpusteward doctor`: check prerequisites and suggest fixes."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

from gpusteward.cli import flags
from gpusteward.cli.api.client import Client
from gpusteward.cli.doctor import engine, installation, node, servers
from gpusteward.cli.doctor.check_results import CheckResult, CheckStatus
from gpusteward.cli.output.tables import show_progress, write_rows
from gpusteward.cli.output.terminal_text import Line, fit, write_paragraphs
from gpusteward.cli.program import EXIT_FAILURE, EXIT_OK

KEYS = tuple(each.name for each in fields(CheckResult))

Check = Callable[[], Iterable[CheckResult]]


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "doctor", "Check driver, permissions, sockets, servers and clocks. Changes nothing, requires none of them."
    )
    flags.add_request_flags(parser)
    flags.add_agent_flags(parser)
    parser.add_argument(
        "--prometheus-url",
        metavar="URL",
        help="address of Prometheus (default: prometheus.url of the settings) [PROM_URL]",
    )
    parser.add_argument(
        "--config",
        metavar="PATH",
        type=Path,
        help="settings file of the analyzer (default config.yaml) [GPUSTEWARD_CONFIG]",
    )
    parser.add_argument("--kubernetes-api", metavar="URL", help="address of the API server, such as a kubectl proxy")
    parser.add_argument(
        "--kubelet-socket",
        metavar="PATH",
        type=Path,
        default=node.KUBELET_SOCKET,
        help="the kubelet's pod-resources socket",
    )
    parser.add_argument(
        node.HOSTENGINE_FLAG,
        metavar="ADDRESS",
        help="the agent's DCGM hostengine: HOST:5555, unix:PATH, embedded or auto "
        f"[{', '.join(node.HOSTENGINE_VARIABLES)}]",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="check an installation in a cluster instead: agents, rights, sources, holders, proof, notices, verdicts; "
        "used by helm test",
    )
    parser.add_argument("--agents", metavar="NAMESPACE/NAME", help="with --cluster: the DaemonSet of the agents")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, default=0.0, help="with --cluster: repeat failed checks this long"
    )
    parser.add_argument("--proc", metavar="PATH", type=Path, default=Path("/proc"), help="the host's /proc")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError."""
    options = build_parser().parse(arguments)
    language = flags.language_of(options)
    results = _check_installation(options) if options.cluster else _check_all(list(_plan(options)))
    if options.output == "table":
        write_paragraphs([line for result in results for line in _describe(result)], sys.stdout)
    else:
        write_rows([asdict(result) for result in results], (), keys=KEYS, output=options.output, language=language)
    return EXIT_FAILURE if any(result.status is CheckStatus.FAIL for result in results) else EXIT_OK


def _check_all(checks: Sequence[Check]) -> Sequence[CheckResult]:
    results: list[CheckResult] = []
    with show_progress("checks") as advance:
        for number, check in enumerate(checks, start=1):
            results += check()
            advance(number, len(checks))
    return results


def _check_installation(options: argparse.Namespace) -> Sequence[CheckResult]:
    """Raises ConfigurationError."""
    analyzer = flags.make_analyzer_client(options)
    agents = installation.parse_agents(options.agents) if options.agents else None
    api_server = installation.find_api_server(os.environ, options.kubernetes_api)

    def check() -> Sequence[CheckResult]:
        found = list(installation.check_agents(api_server, agents)) if agents else []
        if isinstance(api_server, Client):
            found += installation.check_permissions(api_server, installation.OF_ANALYZER)
            found += installation.check_reclaim(api_server, analyzer)
        return [*found, *installation.check_verdicts(analyzer)]

    return installation.wait_until_installed(check, options.wait)


def _describe(result: CheckResult) -> Iterator[Line]:
    yield Line(result.finding, f"{fit(result.status, 5)} {result.check}", result.status)
    if result.mend:
        is_problem = result.status in (CheckStatus.WARN, CheckStatus.FAIL)
        yield Line(f"fix: {result.mend}" if is_problem else result.mend, " ")


def _plan(options: argparse.Namespace) -> Iterator[Check]:
    """Raises ConfigurationError for an invalid address."""
    yield node.check_nvml
    yield node.check_devices
    found = node.find_hostengine(options.dcgm_hostengine, os.environ)
    yield partial(node.check_hostengine, found)
    yield partial(node.check_proc, options.proc, in_container=_is_pod())
    yield node.check_cgroups
    socket = options.kubelet_socket
    is_node = _is_pod() or socket != node.KUBELET_SOCKET or socket.parent.parent.exists()  # a kubelet is expected here
    yield partial(node.check_kubelet, options.kubelet_socket, is_node=is_node)
    yield from _plan_servers(options)


def _plan_servers(options: argparse.Namespace) -> Iterator[Check]:
    """The clocks of all servers that have an address are compared at the end."""
    analyzer, agent = flags.make_analyzer_client(options), flags.make_agent_client(options)
    yield partial(
        servers.check_analyzer, analyzer, is_required=bool(options.server or os.environ.get(flags.SERVER_VARIABLE))
    )
    yield partial(servers.check_agent, agent, is_required=bool(options.agent or os.environ.get(flags.AGENT_VARIABLE)))
    clients = {"analyzer": analyzer, "agent": agent}
    engines, origin = engine.find_engines(
        options.prometheus_url, options.config, os.environ, directory=Path.cwd(), timeout_seconds=options.timeout
    )
    api_server = installation.find_api_server(os.environ, options.kubernetes_api)
    check_engine = partial(engine.check_engine, origin=origin)
    checks: list[tuple[str, Client | CheckResult, Callable[[Client], Iterable[CheckResult]]]] = [
        ("API server", api_server, installation.check_permissions),
        *(("Prometheus", one, check_engine) for one in ([engines] if isinstance(engines, CheckResult) else engines)),
    ]
    for name, found, check in checks:
        if isinstance(found, CheckResult):
            yield partial(list, [found])
        else:
            clients[f"{name} {found.url}" if name in clients else name] = found
            yield partial(check, found)
    yield partial(servers.check_clocks, clients)


def _is_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ
