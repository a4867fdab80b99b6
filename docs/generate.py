"""Generates docs/reference/ from the tables of the code: `make docs`.

A test fails when a page is stale. docs/reference/http.md is written by hand and has tests of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from docs.analyzer_page import write_analyzer_page
from docs.kinds_page import KINDS_PAGES, write_kinds_page
from docs.policies_page import write_policies_page
from docs.tables import code, make_page, make_table
from gpusteward.agent.dialects.native import REPEATED, UNREAD
from gpusteward.agent.settings.flags import FlagGroup, Setting, build_parser
from gpusteward.agent.settings.table import SETTINGS
from gpusteward.cli.commands import (
    actions,
    backfill,
    demo,
    doctor,
    explain,
    idle,
    ledger,
    lend,
    mcp,
    plan,
    ps,
    reclaim,
    replay,
    report,
    restore,
    snooze,
    top,
)
from gpusteward.cli.flags import FlagParser
from gpusteward.cli.kubectl.analyzer import add_cluster_access_flags
from gpusteward.cli.main import COMMANDS
from gpusteward.cli.program import EXITS, PLUGIN_COMMANDS, PLUGIN_NAME
from gpusteward.core import dcgm, metrics
from gpusteward.core.dcgm import DcgmField
from gpusteward.core.dcgm_names import DCGM_1, DCGM_46
from gpusteward.core.metrics import DEVICE_SIGNALS, GPU_MEMORY_USED, METRICS, PROCESS_UTILIZATION, USE_ENERGY, Metric
from gpusteward.core.node.signals import PROFILING, PROFILING_TOTALS, SIGNALS

REFERENCE = Path(__file__).parent / "reference"

LABEL_SETS: Mapping[str, tuple[str, ...]] = {
    "GPU": metrics.GPU,
    "USE": metrics.USE,
    "ALLOCATION": metrics.ALLOCATION,
    "PROCESS": metrics.PROCESS,
}


def main() -> None:
    """Write every page."""
    REFERENCE.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (REFERENCE / name).write_text(write(), encoding="utf-8")
    for path in KINDS_PAGES:
        path.write_text(write_kinds_page(path), encoding="utf-8")


def write_metrics_page() -> str:
    return make_page(
        "Metrics",
        "One snapshot of a node in four dialects; `--dialects` selects among them. What could not be measured is "
        "absent, never 0; an empty label is omitted.",
        "## native: gpusteward's own names",
        "Base units. Summed over `by`, the `gpusteward_use_*` series of a GPU equal its `gpusteward_gpu_*` total. "
        "Label sets used below:",
        make_table(("set", "labels"), ((f"**{name}**", code(labels)) for name, labels in LABEL_SETS.items())),
        "`gpu` is the NVML index. `gpu_instance_id` and `mig_profile` exist on MIG instances only. `by` is "
        "`container`, `host` or `unattributed`; container labels exist only with `container`.",
        "`host` and `unattributed` have no series where they are 0; an XID or a reason that limits the clocks has one "
        "from its first time on, beside a total per GPU that begins at 0.",
        f"Only with `--all-series`: {code(_only_with_all_series())}. Of a GPU without MIG that the dialect `dcgm` "
        f"exports under its own names, these too: {code(_repeated_by_dcgm())}.",
        f"If the last snapshot is older than three intervals, only these remain: {code(_always_exported())}.",
        _metric_table("native"),
        "## vgpu-monitor: k8s-vgpu-monitor's names",
        "Percent, and MB of 1,048,576 bytes, as in that system. `gpu_id` is the NVML index.",
        _metric_table("vgpu-monitor"),
        "## pid2pod: nvidia-pid2pod's name",
        _metric_table("pid2pod"),
        *_dcgm_sections(),
    )


def _metric_table(dialect: str) -> str:
    rows = [row for row in METRICS if row.dialect == dialect]
    return make_table(("metric", "type", "labels", "description"), map(_metric_row, rows))


def _metric_row(metric: Metric) -> Sequence[str]:
    return f"`{metric.name}`", metric.kind, _labels(metric.labels), metric.help


def _only_with_all_series() -> list[str]:
    unread = [DEVICE_SIGNALS[signal].name for signal in sorted(UNREAD)]
    return [*unread, USE_ENERGY.name, PROCESS_UTILIZATION.name]


def _repeated_by_dcgm() -> list[str]:
    return [GPU_MEMORY_USED.name, *(DEVICE_SIGNALS[signal].name for signal in sorted(REPEATED & DEVICE_SIGNALS.keys()))]


def _always_exported() -> list[str]:
    return [metric.name for metric in METRICS if metric.outlives_snapshot]


def _labels(labels: tuple[str, ...]) -> str:
    """The largest named set they begin with, and the rest."""
    within = [name for name, those in LABEL_SETS.items() if labels[: len(those)] == those]
    if not within:
        return code(labels)
    name = max(within, key=lambda name: len(LABEL_SETS[name]))
    return ", ".join(filter(None, (f"**{name}**", code(labels[len(LABEL_SETS[name]) :]))))


def _dcgm_sections() -> Iterable[str]:
    yield "## dcgm: dcgm-exporter's names"
    yield (
        "Labels: `gpu`, `UUID`, `pci_bus_id`, `device`, `modelName`, on MIG instances `GPU_I_PROFILE` and `GPU_I_ID` "
        "(`GPU_CI_ID` where an instance is split further), `Hostname`, `DCGM_FI_DRIVER_VERSION`, and, on a GPU with an "
        "exclusive holder, `container`, `namespace`, `pod`. All fields below are read from NVML, *GPM* fields of GPUs "
        "before Hopper from a DCGM hostengine."
    )
    yield (
        "*4.9* is the name with `--dcgm-names v4.9`, with its unit where that differs. *GPM* fields exist on Hopper "
        "and newer GPUs, on older ones with `--dcgm-hostengine`. *Slow* fields block the collection for 20 ms per GPU."
    )
    header = ("field", "id", "type", "description", "4.9", "")
    yield "### On by default"
    yield make_table(header, map(_field_row, dcgm.DEFAULT_FIELDS))
    yield f"With `--dcgm-names` `v4.9` or `both` also {code(dcgm.V49_DEFAULT_ADDITIONS)}."
    yield "### By a CSV file or ConfigMap"
    yield make_table(header, map(_field_row, dcgm.OPTIONAL_FIELDS))
    yield "Families that dcgm-exporter computes itself:"
    yield make_table(("family", "type", "description"), ((f"`{one.name}`", one.kind, one.help) for one in dcgm.EVENTS))
    yield "Fields of the type `label`; their text becomes a label of every sample of the GPU:"
    yield make_table(
        ("field", "id", "default", "4.9"),
        (
            (f"`{one.name}`", str(one.id), "on" if one in dcgm.DEFAULT_LABELS else "", code([one.v49_name]))
            for one in dcgm.LABELS
        ),
    )
    yield "### Other spellings"
    yield "A CSV may also use these names; they are exported as written."
    yield make_table(("name", "is"), ((f"`{new}`", f"`{name}`") for new, name in (*DCGM_46.items(), *DCGM_1.items())))
    yield "### Not exported"
    yield (
        "Every other field of DCGM 3 and 4 (NVSwitch, CPU, ConnectX, diagnostics, health, single NVLinks, vGPU guests) "
        "is accepted in a CSV file, logged once as `fields_unserved`, and not exported; so is every other name of the "
        "form `DCGM_FI_...`, because each release of DCGM has new ones. A name that is one typing error away from an "
        "exported field is an error with the line number and the nearest field."
    )


def _field_row(field: DcgmField) -> Sequence[str]:
    renamed = code([field.v49_name])
    if field.v49_unit is not None:
        renamed += f" in {field.v49_unit}"
    return f"`{field.name}`", str(field.id), field.kind, field.help_of(field.name), renamed, _condition(field)


def _condition(field: DcgmField) -> str:
    if any(signal in PROFILING | PROFILING_TOTALS for signal in field.signals):
        return "GPM"
    return "slow" if any(SIGNALS[signal].is_slow for signal in field.signals) else ""


def write_settings_page() -> str:
    return make_page(
        "Settings of the agent",
        "Precedence: flag, environment, default. Of several variables the first one that is set is used; an empty one "
        "counts as not set. Switches take `true` or `false`, and the bare flag is `true`. "
        "Go's flag syntax is accepted: `-collectors=x`, `-k=true`. The first two tables are all there is to choose; "
        "the other two are names that a dcgm-exporter may have been given.",
        "## gpusteward's own",
        _setting_table(FlagGroup.OURS),
        "## As in dcgm-exporter",
        _setting_table(FlagGroup.COMPATIBLE),
        "## Other spellings of dcgm-exporter, and what is always on",
        _setting_table(FlagGroup.ALIAS),
        "## Accepted and ignored",
        "Flags and variables of dcgm-exporter without effect here. The agent starts and logs each one with its reason.",
        make_table(
            ("flag", "environment", "reason"),
            ((code(row.flags), code(row.environment), row.about) for row in SETTINGS if row.group is FlagGroup.IGNORED),
        ),
    )


def _setting_table(group: FlagGroup) -> str:
    rows = [row for row in SETTINGS if row.group is group]
    return make_table(("flag", "environment", "default", "description"), map(_setting_row, rows))


def _setting_row(row: Setting) -> Sequence[str]:
    default = row.default_text if " " in row.default_text else code([row.default_text])
    return code(row.flags), code(row.environment, separator="<br>"), default, row.about


def write_cli_page() -> str:
    return make_page(
        "Command line",
        make_table(("command", "description"), ((f"`gpusteward {name}`", about) for name, about in COMMANDS.items())),
        "`gpusteward --help` lists commands, `gpusteward COMMAND --help` flags, `gpusteward --version` the version.",
        "## Exit codes",
        make_table(
            ("code", "command", "when"),
            ((str(each.code), f"`{each.command}`" if each.command else "any", each.when) for each in EXITS),
        ),
        "`agent`, `serve`, `up` and `demo` exit with 0 on SIGTERM and Ctrl-C.",
        *_command_sections(),
        *_plugin_section(),
        "## gpusteward agent",
        str(build_parser(SETTINGS).description),
        "Environment variables and defaults of each flag: [settings](settings.md). `--version`, `-v`: the version.",
        *(f"### Flags: {group.value}\n\n{_flag_list(group)}" for group in FlagGroup),
        "### Signals",
        make_table(
            ("signal", "what the agent does"),
            (
                ("SIGTERM, SIGINT", "stops listening, finishes the current cycle, closes NVML, exits"),
                (
                    "SIGUSR1",
                    "closes NVML for `--release-seconds`, for a GPU reset or a driver reload, then reopens it",
                ),
                ("SIGHUP", "runs a cycle now, which checks for changed files; they are also found without it"),
            ),
        ),
    )


def _command_sections() -> Iterable[str]:
    """The interactive commands, from their parsers."""
    reclaiming = (plan, replay, lend, actions, restore, reclaim, snooze)
    commands = (top, idle, explain, *reclaiming, ps, doctor, report, backfill, ledger, mcp)
    for build in (*(command.build_parser for command in commands), demo.build_load_parser):
        parser = build()
        flags = (each for each in parser._actions if each.option_strings and each.dest != "help")
        yield f"## {parser.prog}"
        yield str(parser.description)
        yield "\n".join(f"- {code(each.option_strings)}: {each.help}" for each in flags)


def _plugin_section() -> Iterable[str]:
    """The flags in place of those that name a server."""
    parser = FlagParser(prog="", description="")
    add_cluster_access_flags(parser)
    flags = [each for each in parser._actions if each.dest != "help"]
    names = ", ".join(f"`{name}`" for name in PLUGIN_COMMANDS)
    yield f"## {PLUGIN_NAME}"
    yield (
        f"A plugin of kubectl with the commands {names}, which reach the analyzer through the API server "
        "([how-to](../how-to/kubectl.md)). In place of `--server`, `--ca-file`, `--agent`, `--ledger` and `--config` "
        "they have:"
    )
    yield "\n".join(f"- {code(each.option_strings)}: {each.help}" for each in flags)


def _flag_list(group: FlagGroup) -> str:
    return "\n".join(f"- {code(row.flags)}: {row.about}" for row in SETTINGS if row.group is group)


PAGES: Mapping[str, Callable[[], str]] = {
    "metrics.md": write_metrics_page,
    "settings.md": write_settings_page,
    "cli.md": write_cli_page,
    "analyzer.md": write_analyzer_page,
    "policies.md": write_policies_page,
}

if __name__ == "__main__":
    main()
