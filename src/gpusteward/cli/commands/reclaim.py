"""`gpusteward reclaim status|off|on`: the state of reclaim, and the switch that stops all actions."""

import sys
from collections.abc import Iterator, Sequence

from gpusteward.cli.flags import FlagParser, add_request_flags, language_of, make_analyzer_client, make_parser
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities, words
from gpusteward.cli.output.tables import write_json
from gpusteward.cli.output.terminal_text import Line, write_paragraphs
from gpusteward.cli.output.verdict_texts import translate
from gpusteward.cli.program import EXIT_OK, name_program
from gpusteward.core.messages import Language, Message

SWITCH_OFF = Message("off, by {by} at {at}: {reason}", "关，由 {by} 于 {at} 关闭：{reason}")
STILL_SUSPENDED = Message(
    "{count} {count:|object is|objects are} still suspended; `gpusteward restore --all` restores them",
    "仍有 {count} 个对象处于暂停状态；执行 `gpusteward restore --all` 可全部恢复",
)
SWITCHED_OFF = Message(
    "reclaim is switched off: no action begins until `{command}`; what was suspended stays so",
    "回收已关闭：在执行 `{command}` 之前不会有新的操作；已暂停的工作负载保持暂停",
)
SWITCHED_ON = Message("reclaim is switched on again; its mode is {mode}", "回收已重新打开；模式为 {mode}")

PATH = "/api/v1/reclaim"
STATUS, OFF, ON = "status", "off", "on"


def build_parser() -> FlagParser:
    parser = make_parser(
        "reclaim",
        "Show the state of reclaim, stop all actions at once, or allow them again. Needs the role admin "
        "for off and on.",
    )
    parser.add_argument("action", choices=(STATUS, OFF, ON), help="status, off (stop all actions) or on")
    parser.add_argument("--reason", default="", metavar="TEXT", help="with off: why, shown to everybody")
    add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    client, language = make_analyzer_client(options), language_of(options)
    if options.action == STATUS:
        status = client.read(PATH)
    else:
        query = [("reason", options.reason)] if options.action == OFF and options.reason else []
        status = client.write(f"{PATH}/{options.action}", query)
    if options.output == "json":
        write_json(status)
        return EXIT_OK
    write_paragraphs(_describe(status, language), sys.stdout)
    mode = translate(words.MODES, status.text("mode"), language)
    done = {OFF: SWITCHED_OFF, ON: SWITCHED_ON}.get(options.action)
    if done is not None:
        print(done.text(language, command=f"{name_program()} reclaim {ON}", mode=mode))
    return EXIT_OK


def _describe(status: Row, language: Language) -> Iterator[Line]:
    mode, switch = status.text("mode"), status.object("switch")
    yield Line(translate(words.MODES, mode, language), Message("mode", "模式").text(language))
    if mode == OFF:
        yield Line(words.MODE_OFF.text(language))
        if count := status.object("details").count("suspended"):
            yield Line(STILL_SUSPENDED.text(language, count=count), words.STATE.text(language), "warn")
        return
    text, word = Message("on", "开").text(language), "ok"
    if switch.get("is_off") is True:
        reason = switch.text("reason") or Message("no reason given", "未说明原因").text(language)
        at = quantities.iso_time(switch.text("at"))
        text, word = SWITCH_OFF.text(language, by=switch.text("by"), at=at, reason=reason), "warn"
    yield Line(text, Message("switch", "开关").text(language), word)
    for name, value in status.object("details").items():
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "" and name != "mode":
            yield Line(str(value), str(name))
