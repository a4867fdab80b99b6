"""Which notices are sent, how often and when: one message per namespace, none in quiet hours, no repetitions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpusteward.analyzer.notify.notices.messages import MessageOptions, write_outage
from gpusteward.analyzer.notify.notices.planner import NoticePlanner
from gpusteward.analyzer.notify.notices.routing import NoticeHistory
from gpusteward.analyzer.notify.outbox.records import NoticeKind, NoticeRecord, OutboxEvent
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.notify.notifier_setup import (
    BUSY,
    IDLE,
    NO_SAMPLES,
    TOTALS,
    gpu_of,
    open_ledger,
    result_of,
    running_notifier,
    settings_of,
)
from tests.analyzer.usage_tables import AT, GIB, signal
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

HOUR = 3600.0
MINUTE = 60.0


@dataclass
class CycleRunner:
    """Plans the notices of one cycle after another; nothing is delivered."""

    settings: Settings
    annotations: dict[str, str] = field(default_factory=dict)  # by pod
    history: NoticeHistory = field(default_factory=NoticeHistory)
    records: list[NoticeRecord] = field(default_factory=list)

    def cycle(
        self, allocations: Sequence[AllocationKey], *, after: float = 0.0, rows=None, idle_hours: float = 2.0
    ) -> list[OutboxEvent]:
        planner = NoticePlanner(
            self.settings,
            self.history,
            engine=None,
            read_notify_annotation=lambda _, pod, _cluster: self.annotations.get(pod, ""),
        )
        result: Result = result_of(allocations, rows, settings=self.settings, at=AT + after, idle_hours=idle_hours)
        batch = planner.plan_idle(result, now=AT + after)
        self.records += batch.notices
        return batch.events


def runner_of(*, channels: Sequence[str] = ("ops",), **notify: object) -> CycleRunner:
    urls = {name: f"https://open.feishu.cn/open-apis/bot/v2/hook/{name}" for name in channels}
    return CycleRunner(settings_of(notify={"channels": urls, "language": "en", **notify}))


def targets(events: Sequence[OutboxEvent]) -> list[str]:
    return [event.target for event in events]


def test_a_notice_names_gpus_time_peak_memory_cost_and_what_happens_next():
    runner = runner_of(idle_minutes=60)
    runner.settings = runner.settings.model_copy(
        update={"prices": runner.settings.prices.model_copy(update={"per_gpu_hour": {"H100": 2.5}})}
    )
    (event,) = runner.cycle([gpu_of("ml", "web"), gpu_of("ml", "web", gpu=1)])
    assert event.body.splitlines() == [
        "Idle GPUs: ml",
        "As of 2026-09-21 14:13 UTC",
        "ml/Deployment/web holds 2 GPUs and has not used any of them since 2026-09-21 12:03 UTC (2 h).",
        "GPUs: node-1 0 (NVIDIA H100 80GB HBM3, GPU-ml-web-0), node-1 1 (NVIDIA H100 80GB HBM3, GPU-ml-web-1)",
        "Peak GPU core utilization in the last 10 min: 0 %",
        "GPU memory in use: 8.0 GiB",
        "Cost of the idle time so far: 10.83 USD",
        "This notice stops nothing. If the GPUs stay idle, the next one follows in 24 h.",
        "Use the GPUs, or release them: scale the workload down or delete it.",
    ]


def test_a_notice_about_several_workloads_has_one_line_with_evidence_for_each():
    (event,) = runner_of().cycle([*(gpu_of("ml", "web", gpu=gpu) for gpu in range(4)), gpu_of("ml", "ocr", gpu=5)])
    since = "idle for 2 h since 2026-09-21 12:03 UTC, peak utilization 0 %, 16.0 GiB of GPU memory in use"
    assert event.body.splitlines()[1:6] == [
        "As of 2026-09-21 14:13 UTC",
        "2 workloads hold 5 GPUs without using any of them.",
        "ml:",
        f"- Deployment/web: 4 GPUs, {since}; on node-1 0, node-1 1, and 2 more",
        f"- Deployment/ocr: 1 GPU, {since.replace('16.0', '4.0')}; on node-1 5",
    ]


def test_chinese_is_the_default_and_a_channel_may_have_its_own_language():
    runner = runner_of(channels=("ops", "intl"), language="zh", languages={"intl": "en"})
    zh, en = runner.cycle([gpu_of("ml", "web")])
    assert zh.body.startswith("GPU 空闲通知：ml\n")
    assert "自 2026-09-21 12:03 UTC 起一直未使用" in zh.body
    assert en.body.startswith("Idle GPUs: ml\n")


def test_without_a_price_no_cost_is_shown():
    (event,) = runner_of().cycle([gpu_of("ml", "web")])
    assert "USD" not in event.body


@pytest.mark.parametrize("row", [BUSY, NO_SAMPLES])
def test_a_workload_that_is_partly_active_or_unknown_causes_no_notice(row: dict):
    assert runner_of().cycle([gpu_of("ml", "web"), gpu_of("ml", "web", gpu=1)], rows=[IDLE, row]) == []


def test_a_notice_is_sent_after_idle_minutes():
    runner = runner_of(idle_minutes=150)
    assert runner.cycle([gpu_of("ml", "web")], idle_hours=2) == []
    assert len(runner.cycle([gpu_of("ml", "web")], idle_hours=3)) == 1


def test_a_thousand_idle_workloads_cause_one_message_per_namespace():
    namespaces = [f"team-{number}" for number in range(4)]
    runner = runner_of(channels=("ops", *namespaces), namespaces={name: name for name in namespaces} | {"*": "ops"})
    allocations = [gpu_of(namespaces[number % 4], f"web-{number}") for number in range(1000)]
    events = runner.cycle(allocations)
    assert targets(events) == [f"channel/{name}/0" for name in namespaces]
    for event in events:
        assert "250 workloads hold 250 GPUs" in event.body
        assert event.body.count("\n- ") == 21
        assert "- and 230 more with 230 GPUs" in event.body
    assert len(runner.records) == 1000
    assert runner.cycle(allocations, after=5 * MINUTE) == []


def test_a_channel_of_many_namespaces_gets_one_message_for_all():
    runner = runner_of(merge_above=5)
    few = runner.cycle([gpu_of(f"team-{number}", "web") for number in range(5)])
    assert len(few) == 5
    many = runner_of(merge_above=5).cycle([gpu_of(f"team-{number % 200}", f"web-{number}") for number in range(1000)])
    assert len(many) == 1
    title, _, first, *_ = many[0].body.splitlines()
    assert title == "Idle GPUs: 200 namespaces"
    assert first.startswith("1000 workloads hold 1000 GPUs")
    assert len(many[0].body) < 4000


def test_a_notice_is_repeated_after_repeat_hours_and_not_before():
    runner = runner_of(repeat_hours=24)
    web = [gpu_of("ml", "web")]
    assert len(runner.cycle(web)) == 1
    for number in range(1, 20):
        assert runner.cycle(web, after=number * HOUR) == []
    assert len(runner.cycle(web, after=24 * HOUR)) == 1


def test_a_workload_that_was_active_in_between_is_not_reported_more_often():
    runner = runner_of(repeat_hours=24)
    assert len(runner.cycle([gpu_of("ml", "web")])) == 1
    assert runner.cycle([gpu_of("ml", "web")], rows=[BUSY], after=HOUR) == []
    assert runner.cycle([gpu_of("ml", "web")], after=6 * HOUR) == []


def test_findings_soon_after_a_message_are_in_the_next_message_to_that_namespace():
    runner = runner_of(owner_minutes=60)
    assert len(runner.cycle([gpu_of("ml", "a")])) == 1
    assert runner.cycle([gpu_of("ml", "a"), gpu_of("ml", "b")], after=10 * MINUTE) == []
    assert len(runner.cycle([gpu_of("other", "x")], after=15 * MINUTE)) == 1
    assert runner.cycle([gpu_of("ml", name) for name in "abc"], after=20 * MINUTE) == []
    (event,) = runner.cycle([gpu_of("ml", name) for name in "abc"], after=60 * MINUTE)
    assert "2 workloads hold 2 GPUs" in event.body


def test_after_quiet_hours_one_message_covers_everything_still_idle():
    began = datetime.fromtimestamp(AT, UTC)  # 14:13 UTC
    runner = runner_of(quiet_hours="14:00-16:00", time_zone="UTC")
    assert began.hour == 14
    assert runner.cycle([gpu_of("ml", "a")]) == []
    (event,) = runner.cycle([gpu_of("ml", "a"), gpu_of("ml", "b")], after=2 * HOUR)
    assert "2 workloads" in event.body


def test_channels_of_a_namespace_take_precedence_over_the_default():
    runner = runner_of(channels=("ops", "ml-team", "sre"), namespaces={"ml": "ml-team, sre"})
    assert sorted(targets(runner.cycle([gpu_of("ml", "web")]))) == ["channel/ml-team/0", "channel/sre/0"]
    assert targets(runner.cycle([gpu_of("chat", "web")])) == ["channel/ops/0"]


def test_an_annotation_can_name_a_channel_of_the_settings():
    runner = runner_of(channels=("ops", "me"), namespaces={"*": "ops"})
    runner.annotations = {"web-pod": "me"}
    assert targets(runner.cycle([gpu_of("ml", "web"), gpu_of("ml", "other")])) == [
        "channel/me/0",
        "channel/ops/0",
    ]


@pytest.mark.parametrize(
    "annotation", ["https://evil.example/hook", "json://evil.example", "missing", "../ops", "ops/0"]
)
def test_an_annotation_can_never_provide_an_address(annotation: str):
    runner = runner_of()
    runner.annotations = {"web-pod": annotation}
    assert targets(runner.cycle([gpu_of("ml", "web")])) == ["channel/ops/0"]


def test_annotations_can_be_disabled():
    runner = runner_of(channels=("ops", "me"), namespaces={"*": "ops"}, annotation=False)
    runner.annotations = {"web-pod": "me"}
    assert targets(runner.cycle([gpu_of("ml", "web")])) == ["channel/ops/0"]


def test_a_restart_repeats_no_notice(tmp_path: Path):
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


def test_an_outage_and_its_end_are_announced_once(tmp_path: Path):
    engine = open_ledger(tmp_path)
    now = [AT]
    with Receiver() as receiver:
        hook = f"{receiver.url}/open-apis/bot/v2/hook/x"
        notify = {"channels": {"ops": hook}, "quiet_hours": "00:00-23:59", "language": "en"}
        settings = settings_of(notify=notify)
        with running_notifier(settings, engine, clock=lambda: now[0]) as notifier:
            for minutes in range(0, 60, 5):
                now[0] = AT + minutes * MINUTE
                notifier.announce_outage("HTTP 503 from @all", at=now[0])
            receiver.wait_for(lambda it: len(it.accepted) == 1)
        with running_notifier(settings, engine, clock=lambda: now[0]) as notifier:  # the history survives a restart
            now[0] = AT + 60 * MINUTE
            for _ in range(2):
                notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=now[0]))
            receiver.wait_for(lambda it: len(it.accepted) == 2)
    engine.dispose()
    outage, recovery = receiver.texts
    assert "No data has been read since 2026-09-21 14:13 UTC (15 min). Reason: HTTP 503 from all" in outage
    assert recovery.startswith("gpusteward can read GPU usage again")


def test_the_reason_of_an_outage_is_in_the_language_of_the_channel():
    error = SourceError(Message("no response within {seconds} s", "{seconds} 秒内没有响应"), seconds=10)
    for language, text in (("en", "Reason: no response within 10 s"), ("zh", "原因：10 秒内没有响应")):
        options = MessageOptions(language, "UTC", "USD", repeat_hours=24, window_seconds=600)
        assert text in write_outage(error, options, since=AT, now=AT + HOUR)


def test_kinds_reserved_for_reclaim_exist():
    assert {"warning", "action", "restored", "refused"} <= {kind.value for kind in NoticeKind}


# Stalled workloads.

SPINNING = (
    signal(Measure.CORE, 1.0)
    | {(Measure.CORE, Stat.COUNT): 20.0, (Measure.SM_ACTIVE, Stat.PEAK): 0.15}
    | signal(Measure.MEMORY_COPY, 0.0)
    | signal(Measure.TENSOR, 0.0)
    | signal(Measure.MEMORY_USED, 60 * GIB)
    | signal(Measure.POWER, 130.0)
    | TOTALS
)


def stalled_runner(**notify: object) -> CycleRunner:
    runner = runner_of(**notify)
    prices = runner.settings.prices.model_copy(update={"per_gpu_hour": {"H100": 2.5}})
    runner.settings = runner.settings.model_copy(update={"prices": prices})
    return runner


def plan_stalled(
    runner: CycleRunner,
    names: Sequence[str] = ("train",),
    *,
    hours: float = 3.0,
    after: float = 0.0,
    row: dict = SPINNING,
    snoozed: Collection[WorkloadKey] = (),
) -> list[OutboxEvent]:
    held = [gpu_of("ml", name, gpu=gpu, kind="PyTorchJob") for name in names for gpu in range(4)]
    result = result_of(held, [row] * len(held), settings=runner.settings, at=AT + after, idle_hours=hours)
    planner = NoticePlanner(runner.settings, runner.history, engine=None, read_notify_annotation=lambda *_: "")
    return planner.plan(result, now=AT + after, snoozed=snoozed).events


def test_the_owner_of_a_stalled_workload_is_told_at_once_with_what_it_costs_and_what_to_do():
    (event,) = plan_stalled(stalled_runner(digest=""))
    assert event.target == "channel/ops/0"
    assert event.body.splitlines() == [
        "GPUs that are busy without doing anything: ml",
        "As of 2026-09-21 14:13 UTC",
        "ml/PyTorchJob/train holds 4 GPUs, which look busy and have done nothing for 3 h.",
        "Busy without doing anything since 2026-09-21 11:03 UTC: 12.7 GPU-hours so far.",
        "All 4 GPUs of it run a kernel: none differs from the others.",
        "To see where a rank stands: kubectl exec -n ml train-pod -c main -- py-spy dump --pid PID, where PID is its "
        "Python process in the container. PyTorch's flight recorder and NCCL's ncclras tell which rank is behind.",
        "Cost of this time so far: 31.67 USD",
        "Look at it before you restart it from its last checkpoint. This notice stops nothing; if it stays so, the "
        "next one follows in 24 h.",
    ]
    (event,) = plan_stalled(stalled_runner(digest="", language="zh"))
    assert event.body.startswith("GPU 疑似空转通知：ml\n")


def test_a_notice_about_a_stalled_workload_is_repeated_only_after_the_interval():
    runner = stalled_runner(digest="")
    assert len(plan_stalled(runner)) == 1
    assert plan_stalled(runner, after=23 * HOUR) == []
    assert len(plan_stalled(runner, after=25 * HOUR)) == 1


def test_many_stalled_workloads_of_a_namespace_are_one_message():
    (event,) = plan_stalled(stalled_runner(digest=""), [f"train-{number}" for number in range(8)])
    assert event.body.count("holds 4 GPUs") == 5
    assert "- and 3 more with 12 GPUs" in event.body


def test_no_notice_about_a_workload_that_is_not_stalled_or_snoozed_or_in_quiet_hours():
    assert plan_stalled(stalled_runner(digest=""), hours=1.5) == []
    assert plan_stalled(stalled_runner(digest=""), row=BUSY) == []
    assert plan_stalled(stalled_runner(digest=""), snoozed=[WorkloadKey("PyTorchJob", "ml", "train")]) == []
    assert plan_stalled(stalled_runner(digest="", quiet_hours="14:00-15:00")) == []


def test_a_notice_about_a_server_says_since_when_it_has_no_requests():
    silent = {(Measure.REQUESTS, Stat.COUNT): 0.0, (Measure.SILENT, Stat.LOWEST): 1.0}
    (event,) = runner_of().cycle([gpu_of("ml", "web")], rows=[IDLE | silent])
    assert "Its inference server has had no request since 2026-09-21 12:03 UTC" in event.body.splitlines()
    served = {(Measure.REQUESTS, Stat.COUNT): 2.0, (Measure.SILENT, Stat.LOWEST): 0.0}
    (event,) = runner_of().cycle([gpu_of("ml", "web")], rows=[IDLE | served])
    assert "Requests of its inference server per hour: 12" in event.body.splitlines()
