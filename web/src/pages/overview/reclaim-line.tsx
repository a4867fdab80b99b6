/** One line: what reclaim has saved and gives back now, and what could be lent; or how to switch it on. A wall has no links. */
import { useResource } from "../../api/resources";
import { fmt } from "../../i18n";
import { linkTo } from "../../router";
import { days } from "../../state/filters";
import { identity } from "../../state/session";
import { texts } from "./texts";

/** Less than this is not worth a line. */
const LEAST_GPUS = 0.05;

export function ReclaimLine({ hasLinks }: { hasLinks: boolean }) {
  const isOn = identity.value?.features?.reclaim ?? null;
  const savings = useResource(isOn ? "/api/v1/savings" : null, { days: days.value });
  const lendable = useResource("/api/v1/lendable", { horizon: ["4h"], limit: 0 });
  const gpus = (lendable.data?.items ?? []).reduce((sum, each) => sum + each.gpus, 0);
  if (isOn === null || (!isOn && !hasLinks)) return null;
  const saved = savings.data;
  if (!hasLinks && saved?.gpu_hours === 0 && gpus < LEAST_GPUS) return null;
  const givenBack = saved && texts("reclaim-given-back", { gpus: fmt.gpus(saved.gpus), n: saved.gpus });
  return (
    <p class="headline-reclaim">
      {!isOn && <>{texts("reclaim-off")} <a href={linkTo("actions")}>{texts("reclaim-switch-on")}</a></>}
      {saved && saved.gpu_hours > 0 && (
        <>
          {saved.cost_micros === null
            ? texts.rich("reclaim-saved-hours", { hours: <strong class="good-number">{fmt.number(saved.gpu_hours, 2)}</strong> })
            : texts.rich("reclaim-saved", { money: <strong class="good-number">{fmt.money(saved.cost_micros, saved.currency)}</strong> })}{" "}
          {hasLinks ? <a href={linkTo("actions", [], { part: "done" })}>{givenBack}</a> : givenBack}
        </>
      )}
      {saved && saved.gpu_hours <= 0 && (
        <>
          {texts("reclaim-none")}{hasLinks && <> <a href={linkTo("actions")}>{texts("reclaim-planned")}</a></>}
        </>
      )}
      {gpus >= LEAST_GPUS && (
        <span>
          {texts("reclaim-lendable", { gpus: fmt.gpus(gpus), n: gpus })}
          {hasLinks && <> <a href={linkTo("policies")}>{texts("reclaim-which")}</a></>}
        </span>
      )}
    </p>
  );
}
