"""The clocks of all servers that answer, against this one, by the Date header of their answers."""

import time
from collections.abc import Iterator, Mapping

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import UnreachableError
from gpusteward.cli.doctor.findings import Finding, Status
from gpusteward.core.messages import Message

TOLERATED_SECONDS = 5.0
BROKEN_SECONDS = 60.0
"""Prometheus refuses samples from the future, and windows of minutes shift by as much."""

NOBODY = Message("no server answered to compare with", "没有可供对比的服务器响应")
AGREES = Message("within {skew:.0f} s of this one: {servers}", "与本机时钟相差不超过 {skew:.0f} 秒：{servers}")
DIFFERS = Message(
    "the clock of {server} differs from this one by {skew:+.0f} s", "{server} 的时钟与本机相差 {skew:+.0f} 秒"
)
SYNCHRONISE = Message(
    "run chrony or systemd-timesyncd on both machines", "请在两台机器上运行 chrony 或 systemd-timesyncd"
)


def check_clocks(servers: Mapping[str, Client]) -> Iterator[Finding]:
    skews = {name: skew for name, client in servers.items() if (skew := measure_skew(client)) is not None}
    agreeing = {name: skew for name, skew in skews.items() if abs(skew) <= TOLERATED_SECONDS}
    if not skews:
        yield Finding("clock", Status.SKIP, NOBODY)
    if agreeing:
        worst = max(map(abs, agreeing.values()))
        yield Finding("clock", Status.OK, AGREES, facts={"servers": ", ".join(agreeing), "skew": max(1.0, worst)})
    for name in skews.keys() - agreeing.keys():
        status = Status.FAIL if abs(skews[name]) > BROKEN_SECONDS else Status.WARN
        yield Finding("clock", status, DIFFERS, SYNCHRONISE, {"server": name, "skew": skews[name]})


def measure_skew(client: Client) -> float | None:
    """Seconds it is ahead of us; None if it does not say. A header tells whole seconds: half of one is put on top."""
    before = time.time()
    try:
        date = client.request("/").date
    except UnreachableError:
        return None
    after = time.time()
    return None if date is None else date + 0.5 - (before + after) / 2
