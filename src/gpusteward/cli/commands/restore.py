"""`gpusteward restore WORKLOAD|ACTION|--all`: put back what reclaim changed."""

import sys
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from gpusteward.cli.api.client import Client, StatusError
from gpusteward.cli.api.workloads import name_of
from gpusteward.cli.commands.actions import describe_state
from gpusteward.cli.flags import FlagParser, add_request_flags, language_of, make_analyzer_client, make_parser
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.tables import write_json
from gpusteward.cli.program import EXIT_FAILURE, EXIT_OK
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Language, Message

RESTORED = Message("{workload}: {state}", "{workload}：{state}")
NOT_RESTORED = Message("{workload}: not restored: {reason}", "{workload}：未恢复：{reason}")

PATH = "/api/v1/actions"
RESTORABLE = [*(("state", each) for each in ("acting", "acted", "verified", "restoring")), ("limit", "1000")]


def build_parser() -> FlagParser:
    parser = make_parser(
        "restore",
        "Put back exactly what reclaim changed on a workload, or on all of them. A workload that somebody "
        "else changed meanwhile is left as it is. Needs the role operator.",
    )
    parser.add_argument(
        "workload",
        nargs="?",
        metavar="WORKLOAD",
        help="NAME, NAMESPACE/NAME, NAMESPACE/KIND/NAME or the id of an action",
    )
    parser.add_argument("--all", action="store_true", help="everything that can be restored")
    add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    client, language = make_analyzer_client(options), language_of(options)
    if options.all and options.workload:
        raise ConfigurationError("--all and a workload exclude each other")
    if not options.all and not options.workload:
        raise ConfigurationError("name a workload or the id of an action, or use --all")
    results: list[Row | None] = []
    tried: set[str] = set()
    while True:  # one answer may not have all of them
        items = client.read(PATH, RESTORABLE).objects("items")
        found = [each for each in items if each.get("is_restorable") is True and each.text("id") not in tried]
        chosen = found if options.all else _choose(found, options.workload)
        results += _restore(client, chosen, language, is_only=len(chosen) == 1 and not results)
        tried |= {each.text("id") for each in chosen}
        if not options.all or not chosen:
            break
    if not results:
        print(Message("nothing to restore", "没有可恢复的操作").text(language), file=sys.stderr)
        return EXIT_OK if options.all else EXIT_FAILURE
    if options.output == "json":
        write_json([each for each in results if each is not None])
    return EXIT_OK if all(each is not None for each in results) else EXIT_FAILURE


def _choose(found: Sequence[Row], text: str) -> list[Row]:
    """A suspended workload holds no GPUs, so it is looked up in the journal alone.

    Raises ConfigurationError where several workloads have this name.
    """
    by_id = [each for each in found if each.get("id") == text]
    chosen = by_id or [each for each in found if name_of(each).matches(text.strip("/"))]
    names = sorted({str(name_of(each)) for each in chosen})
    if len(names) > 1:
        raise ConfigurationError(f"{len(names)} workloads match {text!r}: write one of {', '.join(names[:5])}")
    return chosen[:1]


def _restore(client: Client, chosen: Sequence[Row], language: Language, *, is_only: bool) -> Iterator[Row | None]:
    """One after another; one that is refused does not keep the others back. `is_only`: there are no others."""
    for each in chosen:
        name = str(name_of(each))
        try:
            done = client.write(f"{PATH}/{quote(each.text('id'), safe='')}/restore")
        except StatusError as error:
            if is_only:
                raise
            print(NOT_RESTORED.text(language, workload=name, reason=error), file=sys.stderr)
            yield None
            continue
        state = describe_state(done, language)
        print(RESTORED.text(language, workload=name, state=state), file=sys.stderr)
        yield done
