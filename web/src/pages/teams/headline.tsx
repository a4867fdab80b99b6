/** One sentence: who wasted the most, how much of all that is, and how it compares. */
import { fmt } from "../../i18n";
import { groupName } from "./names";
import type { Report } from "./groups";
import type { Period } from "./period";
import { texts } from "./texts";

const HOUR_MS = 3_600_000;
const SAME = 0.005;

export function Headline({ report, period, by }: { report: Report; period: Period; by: string }) {
  const { total } = report;
  const worst = report.groups[0];
  if (!worst || !total.idle_gpu_ms) return <h1>{texts("headline-none")}</h1>;
  const name = <em class="idle-number">{groupName(worst, by)}</em>;
  const cost = worst.amounts.idle_cost_micros;
  const share = fmt.percent(cost && total.idle_cost_micros ? cost / total.idle_cost_micros : worst.amounts.idle_gpu_ms / total.idle_gpu_ms);
  const fields = { share, period: describePeriod(period, report), change: describeChange(report) };
  return (
    <div>
      <h1>
        {cost
          ? texts.rich("headline", { name, cost: fmt.money(cost, report.currency) })
          : texts.rich("headline-hours", { name, hours: fmt.number(worst.amounts.idle_gpu_ms / HOUR_MS) })}
      </h1>
      <p class="teams-sub">
        {cost && total.idle_cost_micros
          ? texts.rich("sub-cost", { ...fields, total: <strong>{fmt.money(total.idle_cost_micros, report.currency)}</strong> })
          : texts.rich("sub-hours", { ...fields, total: <strong>{fmt.number(total.idle_gpu_ms / HOUR_MS)}</strong> })}
      </p>
    </div>
  );
}

function describePeriod(period: Period, report: Report): string {
  if (period.kind === "days") return texts("period-days", { n: Number.parseInt(period.since, 10) });
  if (period.kind !== "dates") return texts(`period-${period.kind}`);
  const [from, to] = [report.range.asked_since_ms, report.range.asked_until_ms - 1].map((at) => fmt.time(new Date(at), "day"));
  return texts("period-dates", { from: from!, to: to! });
}

function describeChange(report: Report): string {
  const ratio = report.trend?.idle_cost_change_ratio ?? report.trend?.idle_change_ratio;
  if (ratio === null || ratio === undefined) return texts("change-none");
  if (Math.abs(ratio) < SAME) return texts("change-same");
  return texts(ratio > 0 ? "change-more" : "change-less", { percent: fmt.percent(Math.abs(ratio)) });
}
