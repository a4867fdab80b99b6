/** In plain words: what reclaim does here, what it saved, and who stopped it. */
import type { ResourceView } from "../../api/resources";
import { DataState } from "../../components/panel";
import { fmt } from "../../i18n";
import { findPage } from "../../pages";
import { linkTo } from "../../router";
import { days } from "../../state/filters";
import type { Plan, Savings } from "../../reclaim/types";
import { listHostRefusals } from "./entries";
import { type ReclaimStatus, SwitchButton } from "./switch";
import { texts } from "./texts";

interface Props {
  readonly plan: ResourceView<Plan>;
  readonly savings: ResourceView<Savings>;
  readonly status: ResourceView<ReclaimStatus>;
}

export function Headline({ plan, savings, status }: Props) {
  return (
    <div class="actions-head">
      <DataState resource={plan} lines={2}>
        {(data) => {
          const mode = status.data?.mode ?? data.mode;
          const isStopped = status.data?.switch?.is_off ?? false;
          return (
            <>
              <div>
                <h1>{isStopped ? <em class="fault-number">{texts("headline-stopped")}</em> : sentence(mode, savings.data)}</h1>
                <p class="actions-sub">{isStopped ? <StoppedBy status={status.data} plan={data} /> : describe(mode, data, savings.data, Number(status.data?.details["suspended"] ?? 0))}</p>
                <HostRefusals status={status.data} />
              </div>
              <div class="actions-mode">
                <p>
                  <span class="secondary small">{texts("mode")}</span> <strong>{texts(`mode-${mode}`)}</strong>
                  <small>{texts(`mode-hint-${mode}`)}</small>
                </p>
                {mode !== "off" && status.data?.switch && <SwitchButton status={status.data} />}
              </div>
            </>
          );
        }}
      </DataState>
    </div>
  );
}

function sentence(mode: Plan["mode"], savings: Savings | undefined) {
  if (mode !== "enforce") return texts(`headline-${mode}`);
  if (!savings) return texts("headline-enforce-unknown");
  if (savings.gpus < 0.005) return texts("headline-enforce-none");
  return texts.rich("headline-enforce", { gpus: <em class="good-number">{fmt.gpus(savings.gpus)}</em>, n: savings.gpus });
}

export function countPlanned(plan: Plan): number {
  return (plan.counts["act"] ?? 0) + (plan.counts["warn"] ?? 0) + (plan.counts["wait"] ?? 0);
}

function describe(mode: Plan["mode"], plan: Plan, savings: Savings | undefined, suspended: number) {
  const n = countPlanned(plan);
  if (mode === "off") return suspended ? texts("sub-off-suspended", { n: suspended }) : texts("sub-off");
  if (mode === "observe") return texts("sub-observe", { n });
  const next = n ? texts("sub-planned", { n }) : texts("sub-planned-none");
  return <>{savings && savings.gpu_hours > 0 && <>{savedSentence(savings)} </>}{plan.stopped_by || next}</>;
}

/** A refusal that never ends is seen here. */
function HostRefusals({ status }: { status: ReclaimStatus | undefined }) {
  const counts = listHostRefusals(status?.details ?? {});
  if (!counts.length) return null;
  const signals = counts.map(({ signal, n }) => texts("host-refusal", { signal: texts(`host-${signal}`), n })).join(texts("host-and"));
  return <p class="actions-refusals">{texts("host-refusals", { signals })}</p>;
}

function savedSentence(savings: Savings) {
  const hours = <strong>{fmt.number(savings.gpu_hours, savings.gpu_hours < 10 ? 2 : 0)}</strong>;
  if (savings.cost_micros === null) return texts.rich("sub-saved-hours", { hours, days: days.value });
  return texts.rich("sub-saved", { hours, money: <strong>{fmt.money(savings.cost_micros, savings.currency)}</strong>, days: days.value });
}

function StoppedBy({ status, plan }: { status: ReclaimStatus | undefined; plan: Plan }) {
  const found = status?.switch;
  if (!found) return <>{plan.stopped_by}</>;
  const time = found.at ? fmt.time(new Date(found.at), "short") : "–";
  return (
    <>
      {texts("stopped-by", { who: found.by || "–", time })}
      {found.reason && <> · {texts("stopped-reason", { reason: found.reason })}</>}
    </>
  );
}

/** How to begin, where reclaim is off. */
export function FirstSteps() {
  return (
    <section class="panel first-steps">
      <h2>{texts("off-title")}</h2>
      <ol>
        <li><code>reclaim.mode: observe</code><span>{texts("off-observe")}</span></li>
        <li>{findPage("policies") ? <a href={linkTo("policies")}>{texts("off-policies")}</a> : texts("off-policies")}<span>{texts("off-policy")}</span></li>
        <li><code>reclaim.mode: enforce</code><span>{texts("off-enforce")}</span></li>
      </ol>
      <p class="secondary small">{texts("off-docs")}</p>
    </section>
  );
}
