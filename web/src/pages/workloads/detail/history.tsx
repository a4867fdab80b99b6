/** What the ledger has: cost, advice, verdicts over time, notices with their deliveries, snoozes. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ResourceView } from "../../../api/resources";
import { SignatureBadge, wordOf } from "../../../components/badge";
import { DataState } from "../../../components/panel";
import { Time } from "../../../components/time";
import { fmt } from "../../../i18n";
import { wordOfAction } from "../../../reclaim/forecast";
import { texts as words } from "../../../reclaim/texts";
import { texts } from "../texts";
import { LocalText, Section } from "./local-text";
import { type Action, actionState } from "./reclaim";
import { type Event, type HistoryData, groupByGpu, listEvents, makeStrip, type Piece, type SpellGroup } from "./timeline";

type Sum = HistoryData["cost"]["total"];

export function Costs({ history }: { history: ResourceView<HistoryData> }) {
  const data = history.data;
  if (!data || (data.cost.total === null && data.cost.last_7_days === null)) return null;
  const { currency, since, total, last_7_days: week, spell_idle_cost_micros: spell } = data.cost;
  const first = since && <>{texts("cost-since")} <Time at={since} style="day" /></>;
  if ([spell, week?.cost_micros, total?.cost_micros].every((each) => each == null)) return <Hours week={week} total={total} first={first} />;
  const money = (micros: number | null | undefined) => (micros == null ? "–" : fmt.money(micros, currency));
  const hours = (value: number | undefined) => (value === undefined ? "" : texts("cost-hours", { hours: fmt.number(value) }));
  return (
    <Section title={texts("costs")}>
      <dl class="costs">
        <div><dt>{texts("cost-spell")}</dt><dd>{money(spell)}</dd><dd class="secondary small" /></div>
        <div><dt>{texts("cost-week")}</dt><dd>{money(week?.idle_cost_micros)}</dd><dd class="secondary small">{hours(week?.idle_gpu_hours)}</dd></div>
        <div><dt>{texts("cost-total")}</dt><dd>{money(total?.idle_cost_micros)}</dd><dd class="secondary small">{hours(total?.idle_gpu_hours)}</dd></div>
        <div>
          <dt>{texts("cost-all")}</dt>
          <dd>{money(total?.cost_micros)}</dd>
          <dd class="secondary small">{first}</dd>
        </div>
      </dl>
    </Section>
  );
}

/** Instead of costs where there are no prices. */
function Hours({ week, total, first }: { week: Sum; total: Sum; first: ComponentChildren }) {
  const show = (hours: number | undefined) => (hours === undefined ? "–" : fmt.number(hours, hours < 10 ? 1 : 0));
  return (
    <Section title={texts("costs-hours")}>
      <dl class="costs">
        <div><dt>{texts("cost-week")}</dt><dd>{show(week?.idle_gpu_hours)}</dd></div>
        <div><dt>{texts("cost-total")}</dt><dd>{show(total?.idle_gpu_hours)}</dd></div>
        <div><dt>{texts("cost-all")}</dt><dd>{show(total?.gpu_hours)}</dd><dd class="secondary small">{first}</dd></div>
      </dl>
    </Section>
  );
}

export function Advice({ history }: { history: ResourceView<HistoryData> }) {
  const data = history.data;
  if (!data?.advice.length) return null;
  return (
    <Section title={texts("advice")}>
      <ul class="advice">
        {data.advice.map((one) => (
          <li key={`${one.model}/${one.profile}`}>
            {texts(one.part === "mig" ? "advice-mig" : "advice-share", {
              model: fmt.model(one.model),
              profile: one.profile,
              part: fmt.percent(one.board_fraction, 0),
            })}{" "}
            <span class="secondary">
              {texts("advice-peaks", { core: fmt.percent(one.core_peak_ratio, 0), memory: fmt.bytes(one.memory_peak_bytes), total: fmt.bytes(one.memory_total_bytes) })}{" "}
              {one.saving_micros === null
                ? texts("advice-saving-hours", { hours: fmt.number(one.saving_gpu_hours) })
                : texts("advice-saving", { money: fmt.money(one.saving_micros, data.cost.currency) })}
            </span>
          </li>
        ))}
      </ul>
    </Section>
  );
}

const STRIP_DAYS = 14;
const FIRST_EVENTS = 6;

export function History({ history, actions }: { history: ResourceView<HistoryData>; actions: readonly Action[] }) {
  const [isWhole, setWhole] = useState(false);
  return (
    <Section title={texts("history")}>
      <DataState resource={history} lines={4}>
        {(data) => {
          const events = listEvents(data, actions);
          const shown = isWhole ? events : events.slice(0, FIRST_EVENTS);
          return (
            <>
              <Strips data={data} />
              {events.length === 0 && <p class="secondary">{texts("history-empty")}</p>}
              <ol class="events">{shown.map((event, index) => <EventRow key={`${event.type}${event.at}${index}`} of={event} />)}</ol>
              {shown.length < events.length && (
                <button type="button" class="button button-quiet" onClick={() => setWhole(true)}>{texts("history-more", { n: events.length - shown.length })}</button>
              )}
            </>
          );
        }}
      </DataState>
    </Section>
  );
}

const MOST_STRIPS = 8;

/** Two weeks of idle spells, one line per GPU. */
function Strips({ data }: { data: HistoryData }) {
  const to = Math.floor(Date.now() / 60_000) * 60;
  const range = { from: to - STRIP_DAYS * 86_400, to, since: data.cost.since ? Date.parse(data.cost.since) / 1000 : 0 };
  const gpus = groupByGpu(data.spells);
  if (!gpus.size) return null;
  return (
    <div class="strip">
      <p class="strip-title">
        {texts("strip-label", { days: STRIP_DAYS })}
        <span><i class="swatch fill-idle" aria-hidden="true" /> {wordOf("verdict", "idle")}</span>
        <span><i class="swatch fill-held" aria-hidden="true" /> {texts("strip-held")}</span>
      </p>
      {[...gpus].slice(0, MOST_STRIPS).map(([gpu, spells]) => (
        <div key={gpu} class="strip-bar" role="img" aria-label={`${gpu}: ${texts("strip-label", { days: STRIP_DAYS })}`}>
          {makeStrip(spells, range).map((piece) => (
            <i key={piece.from} class={piece.kind ? `fill-${piece.kind}` : ""} style={{ flexGrow: piece.seconds }} title={pieceTitle(piece)} />
          ))}
        </div>
      ))}
      <div class="strip-axis" aria-hidden="true">
        <span>{fmt.time(new Date(range.from * 1000), "day")}</span>
        <span>{fmt.time(new Date(to * 1000), "day")}</span>
      </div>
    </div>
  );
}

function pieceTitle(piece: Piece): string | undefined {
  if (!piece.kind) return undefined;
  const word = piece.kind === "idle" ? `${wordOf("verdict", "idle")} (${wordOf("signature", piece.signature)})` : texts("strip-held");
  return `${word}: ${fmt.duration(piece.seconds)}, ${fmt.time(new Date(piece.from * 1000), "short")}`;
}

function EventRow({ of: event }: { of: Event }) {
  return (
    <li>
      <Time at={event.at} />
      <div>{describeEvent(event)}</div>
    </li>
  );
}

function describeEvent(event: Event) {
  if (event.type === "verdict") {
    const { activity, signature, idle_allocations: idle, allocations } = event.verdict;
    const partly = idle > 0 && idle < allocations ? ` ${texts("history-partly", { idle, allocations })}` : "";
    return <>{wordOf("verdict", activity)} <SignatureBadge signature={signature} />{partly}</>;
  }
  if (event.type === "spell") return <SpellText of={event.spell} />;
  if (event.type === "step") {
    const { step, action } = event;
    const what = words(`word-${wordOfAction(action.action)}`);
    return (
      <>
        {texts("history-action", { action: what, state: actionState(step.state) })}{" "}
        <small>{step.by}{step.note && <> · <LocalText text={step.note} /></>}{action.is_dry_run && ` · ${texts("history-dry-run")}`}</small>
      </>
    );
  }
  if (event.type === "notice") return <NoticeText of={event.notice} />;
  const { snooze } = event;
  if (event.type === "snooze-end") return texts("history-unsnoozed", { who: snooze.ended_by || snooze.who });
  const until = snooze.until ? fmt.time(new Date(snooze.until), "short") : "–";
  return <>{texts("history-snoozed", { until, who: snooze.who })} <span class="secondary">{snooze.reason}</span></>;
}

function SpellText({ of: spell }: { of: SpellGroup }) {
  const end = spell.endedAt ? Date.parse(spell.endedAt) : Date.now();
  const fields = { duration: fmt.duration((end - Date.parse(spell.startedAt)) / 1000), gpus: fmt.gpus(spell.gpus) };
  return (
    <>
      {texts(spell.endedAt ? "history-spell" : "history-spell-now", fields)}
      {spell.endedBy && <small>{texts(endText(spell.endedBy))}</small>}
    </>
  );
}

function endText(endedBy: string) {
  return endedBy === "work" || endedBy === "released" || endedBy === "reclaimed" ? (`spell-${endedBy}` as const) : "spell-lost";
}

function NoticeText({ of: notice }: { of: HistoryData["notices"][number] }) {
  return (
    <>
      {texts("history-notice", { kind: notice.kind })}{notice.channel && ` · ${notice.channel}`}
      {notice.deliveries.map((one) => (
        <small key={one.id} class={one.state === "dead" ? "event-fault" : ""}>
          {one.target}: {texts(`delivery-${one.state}`)}{one.attempts > 1 ? ` (${texts("delivery-attempts", { n: one.attempts })})` : ""}{one.error ? `, ${one.error}` : ""}
        </small>
      ))}
    </>
  );
}
