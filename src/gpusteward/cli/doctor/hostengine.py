"""The DCGM hostengine: whether it responds, and which profiling fields it gives."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpusteward.agent.settings.values import Hostengine, parse_hostengine
from gpusteward.cli.doctor.check_results import CheckResult, Status
from gpusteward.cli.doctor.driver import TIMEOUT_SECONDS, wait_for
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.settings import InvalidSettingError, find_variable

if TYPE_CHECKING:
    from gpusteward.agent.dcgm.client import HostengineReport

FLAG = "--dcgm-hostengine"
VARIABLES = ("GPUSTEWARD_DCGM_HOSTENGINE", "DCGM_REMOTE_HOSTENGINE_INFO")


def find_hostengine(flag: str | None, environ: Mapping[str, str]) -> Hostengine | None:
    """The hostengine of the flag, else of the agent's variables. Raises ConfigurationError."""
    variable = find_variable(VARIABLES, environ)
    text = flag or (environ[variable] if variable else "")
    try:
        return parse_hostengine(text) if text else None
    except InvalidSettingError as error:
        raise ConfigurationError(f"{FLAG if flag else variable}: {text!r}: {error.problem}") from error


def check_hostengine(
    hostengine: Hostengine | None, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[CheckResult]:
    """Connect as the agent does, ask what each GPU supports, disconnect. A call that hangs is abandoned."""
    if hostengine is None:
        yield CheckResult(
            "dcgm",
            Status.SKIP,
            "no DCGM hostengine is configured",
            (
                "no action needed on Hopper and newer; on older GPUs, profiling fields such as Tensor Core "
                "activity and the utilization of MIG instances need one: set --dcgm-hostengine of the agent, "
                "or agent.profiling.hostengine of the chart"
            ),
        )
        return
    from gpusteward.agent.dcgm.client import describe_hostengine

    fields = {"hostengine": hostengine, "seconds": timeout_seconds}
    try:
        report = wait_for(lambda: describe_hostengine(hostengine), timeout_seconds)
    except TimeoutError:
        yield CheckResult(
            "dcgm",
            Status.FAIL,
            "the hostengine {hostengine} did not respond within {seconds:.0f} s",
            "restart the hostengine, and check its log",
            fields,
        )
    except SourceError as error:
        fields |= {"reason": error.as_message()}
        yield CheckResult(
            "dcgm",
            Status.FAIL,
            "the hostengine {hostengine} cannot be used: {reason}",
            (
                "check the address, that nv-hostengine runs (the GPU operator runs it as nvidia-dcgm), and "
                "that libdcgm of the same major version is installed here"
            ),
            fields,
        )
    else:
        yield from _describe(report)


def _describe(report: "HostengineReport") -> Iterator[CheckResult]:
    fields = {"hostengine": report.hostengine, "version": report.version, "gpus": len(report.fields_by_gpu)}
    yield CheckResult(
        "dcgm",
        Status.OK,
        "the hostengine {hostengine} responds; DCGM {version}, {gpus} {gpus:|GPU|GPUs}",
        fields=fields,
    )
    by_fields: dict[tuple[str, ...], list[str]] = {}
    for uuid, names in report.fields_by_gpu.items():
        by_fields.setdefault(names, []).append(uuid)
    for names, uuids in by_fields.items():
        given = {"count": len(uuids), "gpu": uuids[0], "fields": ", ".join(names)}
        if names:
            yield CheckResult("dcgm", Status.OK, "{count} {count:|GPU|GPUs} (such as {gpu}): {fields}", fields=given)
        else:
            yield CheckResult(
                "dcgm",
                Status.WARN,
                "{count} {count:|GPU|GPUs} (such as {gpu}) without profiling fields",
                (
                    "DCGM does not profile GeForce GPUs; on data center GPUs the hostengine must run as root "
                    "or with CAP_SYS_ADMIN"
                ),
                given,
            )
