"""`gpusteward doctor`: check what gpusteward stands on, and say how to mend it."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gpusteward.cli.doctor import clocks, driver, engine, engine_address, kubelet, processes, servers
from gpusteward.cli.doctor import permissions as rights
from gpusteward.cli.doctor.findings import STATUS_WORDS, Finding, Status
from gpusteward.cli.exit_codes import EXIT_FAILURE, EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    AGENT_VARIABLE,
    SERVER_VARIABLE,
    FlagParser,
    add_agent_flags,
    add_language_flag,
    add_output_flags,
    add_server_flags,
    language_of,
    open_agent,
    open_server,
)
from gpusteward.cli.output.console import show_progress
from gpusteward.cli.output.formats import write_rows
from gpusteward.cli.output.paragraphs import Line, write_paragraphs
from gpusteward.cli.output.terminal_text import fit
from gpusteward.core.messages import Language, Message

KEYS = ("check", "status", "finding", "mend")
MEND = Message("to mend it: {how}", "修复方法：{how}")

Check = Callable[[], Iterable[Finding]]


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward doctor",
        description="Check driver, rights, sockets, servers and clocks; nothing is changed. Needs none of them to run.",
        epilog=describe_exits("doctor"),
    )
    add_output_flags(parser)
    add_language_flag(parser)
    add_server_flags(parser)
    add_agent_flags(parser)
    parser.add_argument(
        "--prometheus-url", metavar="URL", help="the engine to look into (default: that of the settings) [PROM_URL]"
    )
    parser.add_argument(
        "--config",
        metavar="PATH",
        type=Path,
        help="settings file of the analyzer (default config.yaml) [GPUSTEWARD_CONFIG]",
    )
    parser.add_argument("--kubernetes-api", metavar="URL", help="the API server, such as a kubectl proxy")
    parser.add_argument(
        "--kubelet-socket", metavar="PATH", type=Path, default=kubelet.SOCKET, help="pod-resources socket"
    )
    parser.add_argument("--proc", metavar="PATH", type=Path, default=Path("/proc"), help="where the host's /proc is")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError."""
    given = build_parser().parse(arguments)
    language, checks = language_of(given), list(_plan(given))
    findings: list[Finding] = []
    with show_progress("checks") as advance:
        for number, check in enumerate(checks, start=1):
            findings += check()
            advance(number, len(checks))
    if given.output == "table":
        write_paragraphs(_describe(findings, language), sys.stdout)
    else:
        rows = [finding.tell(language) for finding in findings]
        write_rows(rows, (), keys=KEYS, output=given.output, language=language)
    return EXIT_FAILURE if any(finding.status is Status.FAIL for finding in findings) else EXIT_OK


def _describe(findings: Iterable[Finding], language: Language) -> Iterator[Line]:
    for finding in findings:
        told = finding.tell(language)
        status = fit(STATUS_WORDS[finding.status].text(language), 5)
        yield Line(told["finding"], f"{status} {told['check']}", told["status"])
        if told["mend"]:
            is_broken = finding.status in (Status.WARN, Status.FAIL)
            yield Line(MEND.text(language, how=told["mend"]) if is_broken else told["mend"], " ")


def _plan(given: argparse.Namespace) -> Iterator[Check]:
    """Every check with what it looks at. Raises ConfigurationError for an address that is none."""
    yield driver.check_nvml
    yield driver.check_devices
    yield partial(processes.check_proc, given.proc, in_container=_is_pod())
    yield processes.check_cgroups
    yield partial(kubelet.check_kubelet, given.kubelet_socket, is_node=_is_node(given.kubelet_socket))
    yield from _plan_servers(given)


def _plan_servers(given: argparse.Namespace) -> Iterator[Check]:
    """Those that are found to be asked are compared by their clocks too."""
    analyzer, agent = open_server(given), open_agent(given)
    yield partial(servers.check_analyzer, analyzer, is_named=bool(given.server or os.environ.get(SERVER_VARIABLE)))
    yield partial(servers.check_agent, agent, is_named=bool(given.agent or os.environ.get(AGENT_VARIABLE)))
    asked = {"analyzer": analyzer, "agent": agent}
    prometheus, origin = _find_engine(given)
    for name, found, check in (
        ("API server", rights.find_api_server(os.environ, given.kubernetes_api), rights.check_rights),
        ("Prometheus", prometheus, partial(engine.check_engine, origin=origin)),
    ):
        if isinstance(found, Finding):
            yield partial(list, [found])
        else:
            asked[name] = found
            yield partial(check, found)
    yield partial(clocks.check_clocks, asked)


def _is_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _is_node(socket: Path) -> bool:
    """Where a kubelet is to be expected."""
    return _is_pod() or socket != kubelet.SOCKET or socket.parent.parent.exists()


def _find_engine(given: argparse.Namespace) -> engine_address.Found:
    return engine_address.find_engine(
        given.prometheus_url, given.config, os.environ, directory=Path.cwd(), timeout_seconds=given.timeout
    )
