"""`gpusteward snooze WORKLOAD --for 8h --reason TEXT`: no notices about a workload and no action on it for a time."""

import json
from argparse import Namespace
from collections.abc import Sequence

from gpusteward.cli import flags
from gpusteward.cli.api.client import Client
from gpusteward.cli.api.workloads import find_workload, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.tables import Column, write_rows
from gpusteward.cli.program import EXIT_OK
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Message

PATH = "/api/v1/snoozes"
KEYS = ("cluster", "kind", "namespace", "name", "until", "reason", "who", "created_at")
COLUMNS = (
    Column("workload", Message("workload", "工作负载")),
    Column("until", Message("snoozed until", "暂缓至")),
    Column("who", Message("by", "操作者")),
    Column("reason", Message("reason", "原因"), is_flexible=True),
)


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "snooze",
        "Send no notices about a workload and do not touch it for some time, at most as long as its policy "
        "allows; list such workloads, or end it early. Changes need the role operator.",
    )
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?", default="", help=flags.WORKLOAD_FORMS)
    parser.add_argument(
        "--for", dest="seconds", type=flags.read_duration, metavar="DURATION", help="how long: 30m, 8h, 2d"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for others who look at the workload")
    parser.add_argument("--list", dest="is_list", action="store_true", help="list the workloads that are snoozed")
    parser.add_argument("--end", dest="is_end", action="store_true", help="end the snooze of the workload")
    flags.add_workload_flags(parser)
    flags.add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError for an unreachable analyzer or an unknown workload."""
    options = build_parser().parse(arguments)
    _check(options)
    client, language = flags.make_analyzer_client(options), flags.language_of(options)
    if options.is_list:
        rows = client.read(PATH).objects("items")
    elif options.is_end:
        rows = [_end(client, options)]
    else:
        rows = [_add(client, options)]
    rows = [Row(row, workload=str(name_of(row))) for row in rows]
    write_rows(rows, COLUMNS, keys=KEYS, output=options.output, language=language)
    return EXIT_OK


def _check(options: Namespace) -> None:
    """Raises ConfigurationError."""
    is_new = not (options.is_list or options.is_end)
    is_valid = (
        (options.is_list and not options.is_end and not options.workload)
        or (options.is_end and not options.is_list and options.workload)
        or (is_new and options.workload and options.seconds and options.reason.strip())
    )
    if not is_valid:
        raise ConfigurationError("write WORKLOAD --for DURATION --reason TEXT, WORKLOAD --end, or --list")


def _add(client: Client, options: Namespace) -> Row:
    name, ended = find_workload(client, options.workload, namespace=options.namespace, cluster=options.cluster)
    if ended is not None:
        raise SourceError(f"{name} no longer holds a GPU")
    body = json.dumps({"hours": options.seconds / 3600, "reason": options.reason.strip()}).encode()
    return client.write(f"{name.path}/snooze", name.query, body=body)


def _end(client: Client, options: Namespace) -> Row:
    """The workload may no longer hold GPUs: its snooze is found among the active ones first."""
    snoozed = map(name_of, client.read(PATH).objects("items"))
    found = [name for name in snoozed if name.matches(options.workload, options.namespace)]
    found = [name for name in found if options.cluster in ("", name.cluster)]
    if len(found) == 1:
        name = found[0]
    else:
        name, _ = find_workload(client, options.workload, namespace=options.namespace, cluster=options.cluster)
    return client.write(f"{name.path}/snooze", name.query, method="DELETE")
