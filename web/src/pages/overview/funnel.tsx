/** What is left of all GPUs at each step, down to those with effective work: now, and in the period. */
import { fmt, t } from "../../i18n";
import type { OverviewData } from "./overview";
import { countSteps } from "./rounding";
import { texts } from "./texts";

type Step = OverviewData["funnel"][number];

export function Funnel({ data }: { data: OverviewData }) {
  const counts = countSteps(data.gpus);
  const all = data.gpus.total ?? data.gpus.allocated;
  if (!all) return null;
  const isRecorded = data.funnel.some((each) => each.gpu_hours !== null);
  return (
    <div class="funnel">
      <dl>
        {data.funnel.filter((each) => each.gpus !== null).map((each) => (
          <div key={each.step}>
            <dt>{each.step === "active" ? t("verdict.active") : texts(`step-${each.step}`)}</dt>
            <dd class="funnel-gpus">{fmt.gpus(counts[each.step])}</dd>
            <dd class="funnel-track" aria-hidden="true"><i style={{ width: `${Math.min(100, (100 * each.gpus!) / all)}%` }} /></dd>
            {isRecorded && <Amounts step={each} currency={data.currency} />}
          </div>
        ))}
      </dl>
      <p class="secondary">{isRecorded && texts("funnel-period", { days: data.waste.days })} {texts("funnel-note")}</p>
    </div>
  );
}

function Amounts({ step, currency }: { step: Step; currency: string }) {
  const { gpu_hours: hours, cost_micros: cost } = step;
  return (
    <dd class="funnel-amounts secondary">
      <span>{hours === null ? "–" : texts("funnel-hours", { hours: fmt.number(hours) })}</span>
      {cost !== null && <span>{fmt.money(cost, currency)}</span>}
    </dd>
  );
}
