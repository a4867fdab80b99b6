"""`gpusteward snooze WORKLOAD`: no notices about a workload and no action on it for some time."""

import json
from collections.abc import Sequence

from gpusteward.cli.api.workloads import find_workload
from gpusteward.cli.exit_codes import EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    FlagParser,
    add_language_flag,
    add_output_flags,
    add_server_flags,
    language_of,
    make_analyzer_client,
    read_duration,
)
from gpusteward.cli.json_access import as_object, get_text
from gpusteward.cli.output import quantities
from gpusteward.cli.output.formats import write_json
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages import cli_reclaim as messages


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward snooze",
        description="Send no notices about a workload and do not touch it for some time, at most as long as its policy "
        "allows. Needs the role operator.",
        epilog=describe_exits("snooze"),
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME")
    parser.add_argument("--for", dest="seconds", type=read_duration, metavar="TIME", help="how long: 4h, 8h, 2d")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, shown to everybody")
    parser.add_argument("--end", action="store_true", help="end the snooze")
    add_output_flags(parser)
    add_language_flag(parser)
    add_server_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    if (options.seconds is None) is not options.end:
        raise ConfigurationError(messages.SNOOZE_NEEDS_TIME)
    client, language = make_analyzer_client(options), language_of(options)
    name = find_workload(client, options.workload).name
    if options.end:
        done = as_object(client.write(f"{name.path}/snooze", name.query, method="DELETE"))
    else:
        body = {"hours": options.seconds / 3600, "reason": options.reason or "-"}
        done = as_object(client.write(f"{name.path}/snooze", name.query, body=json.dumps(body).encode()))
    if options.output == "json":
        write_json(done)
    elif options.end:
        print(messages.SNOOZE_ENDED.text(language, workload=name))
    else:
        until = quantities.iso_time(get_text(done, "until") or None)
        print(messages.SNOOZED.text(language, workload=name, until=until))
    return EXIT_OK
