import { type Share, StackedBar } from "../../components/bar";
import { fmt, t } from "../../i18n";
import { findPage } from "../../pages";
import { linkTo } from "../../router";
import type { OverviewData } from "./overview";
import { ReclaimLine } from "./reclaim-line";
import { listParts, roundToSum, WHOLE_FROM } from "./rounding";
import { texts } from "./texts";

const KINDS: readonly Share[] = ["active", "suspicious", "idle", "unknown", "free"];
/** The workloads whose GPUs add up to a number of the legend. */
const ROWS: Readonly<Partial<Record<Share, string>>> = { suspicious: "verdict:suspicious", idle: "idle-gpus>0", unknown: "unknown-gpus>0" };
const SHOWN_PROBLEMS = 2;

export function Headline({ data, hasLinks = true }: { data: OverviewData; hasLinks?: boolean }) {
  const { gpus } = data;
  const values = listParts(gpus);
  const sum = values.reduce((total, each) => total + each, 0);
  const shown = sum >= WHOLE_FROM ? roundToSum(values) : values;
  const counts = Object.fromEntries(KINDS.map((kind, index) => [kind, fmt.gpus(shown[index]!)]));
  const total = gpus.total === null ? null : fmt.gpus(gpus.total);
  return (
    <>
      <div class="headline">
        <div>
          <h1>{sentence(data, counts["idle"]!, total)}</h1>
          <p class="headline-cost">{costSentence(data)} {potentialSentence(data, hasLinks)}</p>
          <BusyLine data={data} hasLinks={hasLinks} />
          <ReclaimLine hasLinks={hasLinks} />
        </div>
        <Problems data={data} />
      </div>
      <StackedBar size="large" label={texts("bar-label", counts)} parts={KINDS.map((kind, index) => ({ kind, value: values[index]! }))} />
      <div class="legend">
        <dl>
          {KINDS.filter((kind, index) => (kind === "suspicious" ? values[index]! > 0 : kind !== "free" || gpus.free !== null)).map((kind) => (
            <div key={kind}>
              <dt>{t(`verdict.${kind}`)}</dt>
              <dd><i class={`swatch fill-${kind}`} aria-hidden="true" />{hasLinks && ROWS[kind] ? <a class="plain-link" href={linkTo("workloads", [], { q: ROWS[kind] })}>{counts[kind]}</a> : counts[kind]}</dd>
            </div>
          ))}
        </dl>
        {total !== null && <span class="secondary">{texts("allocated", { allocated: fmt.gpus(sum >= WHOLE_FROM ? Math.round(gpus.allocated) : gpus.allocated), total })}</span>}
      </div>
    </>
  );
}

function sentence(data: OverviewData, idle: string, total: string | null) {
  if (!data.workloads && !data.gpus.total) return texts("headline-no-gpus");
  if (data.gpus.idle < 0.005) return texts("headline-none");
  const number = <em class="idle-number">{idle}</em>;
  return total === null ? texts.rich("headline-without-total", { idle: number }) : texts.rich("headline", { idle: number, total });
}

function costSentence({ waste, currency }: OverviewData) {
  const { days, idle_cost_micros: cost, idle_gpu_hours: hours, change_ratio: change } = waste;
  if (hours === null || hours < 0.01) return null;
  const amount = cost === null
    ? texts.rich("hours", { hours: <strong>{fmt.number(hours)}</strong>, days })
    : texts.rich("cost", { cost: <strong>{fmt.money(cost, currency)}</strong>, days });
  if (change === null) return [...amount, texts("end")];
  const key = Math.abs(change) < 0.005 ? "same" : change > 0 ? "more" : "less";
  return [...amount, texts(key, { percent: fmt.percent(Math.abs(change), Math.abs(change) < 0.1 ? 0 : undefined), days })];
}

function potentialSentence({ potential }: OverviewData, hasLinks: boolean) {
  const { workloads, gpus, cost_micros_per_hour: cost } = potential;
  if (!workloads || gpus < 0.1) return null;
  const count = gpus >= 2 ? Math.round(gpus) : gpus;
  const key = workloads === 1 ? "potential-one" : "potential";
  const sentence = texts(cost === null ? `${key}-unpriced` : key, { workloads, gpus: fmt.gpus(count) });
  // The GPUs of the first rows of this list add up to the number.
  return hasLinks ? <a href={linkTo("workloads", [], { q: "verdict:idle", sort: cost === null ? "-gpus" : "-rate", columns: "workload,user,gpus,signature,idle,rate" })}>{sentence}</a> : sentence;
}

/** What looks busy but is not, and what it costs per hour; and who works but waits for data. A wall has no links. */
function BusyLine({ data: { suspicious, starved, currency }, hasLinks }: { data: OverviewData; hasLinks: boolean }) {
  if (!suspicious.workloads && !starved.workloads) return null;
  const link = (q: string) => hasLinks && <> <a href={linkTo("workloads", [], { q })}>{texts("busy-which")}</a></>;
  const cost = suspicious.cost_micros_per_hour;
  return (
    <p class="headline-busy">
      {suspicious.workloads > 0 && (
        <span>
          {texts.rich("busy-suspicious", { n: <strong class="suspicious-number">{fmt.number(suspicious.workloads)}</strong>, count: suspicious.workloads })}
          {cost === null ? texts("end") : texts("busy-cost", { money: fmt.money(cost, currency) })}
          {link("verdict:suspicious")}
        </span>
      )}{" "}
      {starved.workloads > 0 && <span>{texts("busy-starved", { n: starved.workloads })}{link("verdict:active signature:starved")}</span>}
    </p>
  );
}

/** What is missing in the data, in the words of the API. */
function Problems({ data }: { data: OverviewData }) {
  const { problems } = data.data;
  if (!problems.length) return null;
  const shown = problems.slice(0, SHOWN_PROBLEMS);
  const rest = problems.length - shown.length;
  return (
    <ul class="problems">
      {shown.map((problem, index) => (
        <li key={problem.code} class={`problem-${problem.level}`}>
          {problem.text}
          {index === shown.length - 1 && (
            <>
              {rest > 0 && ` ${texts("health-more", { n: rest })}`}
              {findPage("sources") && <> <a href={linkTo("sources")}>{texts("health-show")}</a></>}
            </>
          )}
        </li>
      ))}
    </ul>
  );
}
