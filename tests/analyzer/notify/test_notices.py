"""What people are told, how often, and when: one message an owner, nothing at night, nothing twice."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpusteward.analyzer.notify.notices.notice_history import NoticeHistory, NoticeKind
from gpusteward.analyzer.notify.notices.planner import Notices
from gpusteward.analyzer.notify.outbox.records import NoticeRecord, OutboxEvent
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.usages import AllocationKey
from tests.analyzer.notify.notifier_setup import (
    BUSY,
    IDLE,
    UNREAD,
    gpu_of,
    open_ledger,
    result_of,
    running_notifier,
    settings_of,
)
from tests.analyzer.usage_tables import AT
from tests.fakes.receivers import Receiver, wait_until

HOUR = 3600.0
MINUTE = 60.0


@dataclass
class Desk:
    """Decisions of one cycle after another, without anybody who delivers."""

    settings: Settings
    wishes: dict[str, str] = field(default_factory=dict)
    told: NoticeHistory = field(default_factory=NoticeHistory)
    notes: list[NoticeRecord] = field(default_factory=list)

    def cycle(
        self, allocations: Sequence[AllocationKey], *, after: float = 0.0, rows=None, idle_hours: float = 2.0
    ) -> list[OutboxEvent]:
        notices = Notices(self.settings, self.told, read_wish=lambda _, pod: self.wishes.get(pod, ""))
        result: Result = result_of(allocations, rows, settings=self.settings, at=AT + after, idle_hours=idle_hours)
        mail = notices.find_idle(result, now=AT + after)
        self.notes += mail.notes
        return mail.events


def desk(*, channels: Sequence[str] = ("ops",), **notify: object) -> Desk:
    urls = {name: f"https://open.feishu.cn/open-apis/bot/v2/hook/{name}" for name in channels}
    return Desk(settings_of(notify={"channels": urls, "language": "en", **notify}))


def targets(events: Sequence[OutboxEvent]) -> list[str]:
    return [event.target for event in events]


def test_a_notice_names_gpus_time_peak_memory_cost_and_what_happens():
    where = desk(idle_minutes=60)
    where.settings = where.settings.model_copy(
        update={"prices": where.settings.prices.model_copy(update={"per_gpu_hour": {"H100": 2.5}})}
    )
    (event,) = where.cycle([gpu_of("ml", "web"), gpu_of("ml", "web", gpu=1)])
    assert event.body.splitlines() == [
        "GPUs idle: ml",
        "ml / Deployment web holds 2 GPUs and has used none of them since 2026-09-21 12:03 UTC (2 h).",
        "GPUs: node-1 0 (NVIDIA H100 80GB HBM3, GPU-ml-web-0), node-1 1 (NVIDIA H100 80GB HBM3, GPU-ml-web-1)",
        "Peak of the GPU cores in the last 10 min: 0 %",
        "Memory held: 8.0 GiB",
        "Cost of the idle time so far: 10.83 USD",
        "What happens: nothing is stopped. While it stays idle you are told again after 24 h.",
        "To end this: use the GPUs, scale it down, or delete it.",
    ]


def test_of_several_workloads_each_line_has_its_evidence():
    (event,) = desk().cycle([*(gpu_of("ml", "web", gpu=gpu) for gpu in range(4)), gpu_of("ml", "ocr", gpu=5)])
    since = "idle for 2 h since 2026-09-21 12:03 UTC, peak 0 %, 16.0 GiB of memory held"
    assert event.body.splitlines()[1:5] == [
        "2 workloads hold 5 GPUs, none of them used.",
        "ml:",
        f"- Deployment web: 4 GPUs, {since}; on node-1 0, node-1 1, and 2 more",
        f"- Deployment ocr: 1 GPU, {since.replace('16.0', '4.0')}; on node-1 5",
    ]


def test_chinese_is_the_default_and_a_channel_may_have_its_own_language():
    where = desk(channels=("ops", "intl"), language="zh", languages={"intl": "en"})
    zh, en = where.cycle([gpu_of("ml", "web")])
    assert zh.body.startswith("GPU 空闲通知：ml\n")
    assert "自 2026-09-21 12:03 UTC 起全部未使用" in zh.body
    assert en.body.startswith("GPUs idle: ml\n")


def test_without_a_price_no_cost_is_told():
    (event,) = desk().cycle([gpu_of("ml", "web")])
    assert "USD" not in event.body


@pytest.mark.parametrize("row", [BUSY, UNREAD])
def test_who_works_or_is_unknown_is_not_told_of(row: dict):
    assert desk().cycle([gpu_of("ml", "web"), gpu_of("ml", "web", gpu=1)], rows=[IDLE, row]) == []


def test_idleness_is_told_of_after_its_time():
    where = desk(idle_minutes=150)
    assert where.cycle([gpu_of("ml", "web")], idle_hours=2) == []
    assert len(where.cycle([gpu_of("ml", "web")], idle_hours=3)) == 1


def test_a_thousand_idle_workloads_send_one_message_an_owner():
    namespaces = [f"team-{number}" for number in range(4)]
    where = desk(channels=("ops", *namespaces), namespaces={name: name for name in namespaces}, default=["ops"])
    allocations = [gpu_of(namespaces[number % 4], f"web-{number}") for number in range(1000)]
    events = where.cycle(allocations)
    assert targets(events) == [f"channel/{name}/0" for name in namespaces]
    for event in events:
        assert "250 workloads hold 250 GPUs" in event.body
        assert event.body.count("\n- ") == 21
        assert "- and 230 more with 230 GPUs" in event.body
    assert len(where.notes) == 1000
    assert where.cycle(allocations, after=5 * MINUTE) == []


def test_a_channel_for_many_owners_gets_one_message_instead_of_a_flood():
    where = desk(merge_above=5)
    few = where.cycle([gpu_of(f"team-{number}", "web") for number in range(5)])
    assert len(few) == 5
    many = desk(merge_above=5).cycle([gpu_of(f"team-{number % 200}", f"web-{number}") for number in range(1000)])
    assert len(many) == 1
    assert many[0].body.startswith("GPUs idle: 200 namespaces\n1000 workloads hold 1000 GPUs")
    assert len(many[0].body) < 4000


def test_a_notice_is_not_repeated_each_cycle_but_after_its_time():
    where = desk(repeat_hours=24)
    web = [gpu_of("ml", "web")]
    assert len(where.cycle(web)) == 1
    for number in range(1, 20):
        assert where.cycle(web, after=number * HOUR) == []
    assert len(where.cycle(web, after=24 * HOUR)) == 1


def test_a_workload_that_worked_in_between_is_not_told_of_more_often():
    where = desk(repeat_hours=24)
    assert len(where.cycle([gpu_of("ml", "web")])) == 1
    assert where.cycle([gpu_of("ml", "web")], rows=[BUSY], after=HOUR) == []
    assert where.cycle([gpu_of("ml", "web")], after=6 * HOUR) == []


def test_what_is_found_soon_after_a_message_waits_for_the_next_one_to_this_owner():
    where = desk(owner_minutes=60)
    assert len(where.cycle([gpu_of("ml", "a")])) == 1
    assert where.cycle([gpu_of("ml", "a"), gpu_of("ml", "b")], after=10 * MINUTE) == []
    assert len(where.cycle([gpu_of("other", "x")], after=15 * MINUTE)) == 1
    assert where.cycle([gpu_of("ml", name) for name in "abc"], after=20 * MINUTE) == []
    (event,) = where.cycle([gpu_of("ml", name) for name in "abc"], after=60 * MINUTE)
    assert "2 workloads hold 2 GPUs" in event.body


def test_quiet_hours_keep_everything_for_one_message_in_the_morning():
    began = datetime.fromtimestamp(AT, UTC)  # 14:13 UTC
    where = desk(quiet_hours="14:00-16:00", time_zone="UTC")
    assert began.hour == 14
    assert where.cycle([gpu_of("ml", "a")]) == []
    (event,) = where.cycle([gpu_of("ml", "a"), gpu_of("ml", "b")], after=2 * HOUR)
    assert "2 workloads" in event.body


def test_the_table_of_namespaces_comes_before_the_default():
    where = desk(channels=("ops", "ml-team", "sre"), namespaces={"ml": "ml-team, sre"})
    assert sorted(targets(where.cycle([gpu_of("ml", "web")]))) == ["channel/ml-team/0", "channel/sre/0"]
    assert targets(where.cycle([gpu_of("chat", "web")])) == ["channel/ops/0"]


def test_an_annotation_may_name_a_channel_of_the_settings():
    where = desk(channels=("ops", "me"), default=["ops"])
    where.wishes = {"web-pod": "me"}
    assert targets(where.cycle([gpu_of("ml", "web"), gpu_of("ml", "other")])) == [
        "channel/me/0",
        "channel/ops/0",
    ]


@pytest.mark.parametrize("wish", ["https://evil.example/hook", "json://evil.example", "nobody", "../ops", "ops/0"])
def test_an_annotation_can_never_bring_an_address_of_its_own(wish: str):
    where = desk()
    where.wishes = {"web-pod": wish}
    assert targets(where.cycle([gpu_of("ml", "web")])) == ["channel/ops/0"]


def test_annotations_can_be_switched_off():
    where = desk(channels=("ops", "me"), default=["ops"], annotation=False)
    where.wishes = {"web-pod": "me"}
    assert targets(where.cycle([gpu_of("ml", "web")])) == ["channel/ops/0"]


def test_after_a_restart_nothing_is_told_again(tmp_path: Path):
    engine = open_ledger(tmp_path)
    now = [AT]
    with Receiver() as receiver:
        settings = settings_of(notify={"channels": {"ops": f"{receiver.url}/open-apis/bot/v2/hook/x"}, "digest": ""})
        for after in (0, 300, 600):
            now[0] = AT + after
            with running_notifier(settings, engine, clock=lambda: now[0]) as notifier:
                notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=now[0]))
                receiver.wait_for(lambda it: len(it.accepted) >= 1)
                wait_until(lambda: not notifier.counters.pending.get("notice"))
        assert len(receiver.accepted) == 1
        now[0] = AT + 25 * HOUR
        with running_notifier(settings, engine, clock=lambda: now[0]) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=now[0]))
            receiver.wait_for(lambda it: len(it.accepted) == 2)
    engine.dispose()


def test_a_lost_source_is_told_once_and_so_is_its_return(tmp_path: Path):
    engine = open_ledger(tmp_path)
    now = [AT]
    with Receiver() as receiver:
        hook = f"{receiver.url}/open-apis/bot/v2/hook/x"
        notify = {"channels": {"ops": hook}, "lost_minutes": 15, "quiet_hours": "00:00-23:59", "language": "en"}
        settings = settings_of(notify=notify)
        with running_notifier(settings, engine, clock=lambda: now[0]) as notifier:
            for minutes in range(0, 60, 5):
                now[0] = AT + minutes * MINUTE
                notifier.announce_outage("HTTP 503 from @all", at=now[0])
            receiver.wait_for(lambda it: len(it.accepted) == 1)
        with running_notifier(settings, engine, clock=lambda: now[0]) as notifier:  # a restart forgets nothing
            now[0] = AT + 60 * MINUTE
            for _ in range(2):
                notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=now[0]))
            receiver.wait_for(lambda it: len(it.accepted) == 2)
    engine.dispose()
    lost, found = receiver.texts
    assert "Nothing could be read since 2026-09-21 14:13 UTC (15 min). Reason: HTTP 503 from all" in lost
    assert found.startswith("gpusteward reads again")


def test_kinds_for_who_reclaims_are_there():
    assert {"warning", "action", "restored", "refused"} <= {kind.value for kind in NoticeKind}
