import type { Resource } from "../../api/resources";
import { SignatureBadge } from "../../components/badge";
import { AmountLine } from "../../components/bar";
import { Panel } from "../../components/panel";
import { Since } from "../../components/time";
import { WorkloadLink } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { linkTo } from "../../router";
import { amountOf, findMeasure, type Measure } from "./amounts";
import type { OverviewData } from "./overview";
import { texts } from "./texts";

type Row = OverviewData["top"][number];

export function TopPanel({ overview }: { overview: Resource<OverviewData> }) {
  const data = overview.data;
  const measure = data ? findMeasure(data.top) : "cost";
  return (
    <Panel
      class="top-panel"
      title={texts(measure === "cost" ? "top" : "top-unpriced")}
      aside={data && data.idle_workloads > 0 && <a href={linkTo("workloads", [], { q: "idle-gpus>0" })}>{texts("top-all", { n: data.idle_workloads })}</a>}
      resource={overview}
      lines={10}
      isEmpty={(shown) => shown.top.length === 0}
      empty={texts("top-empty")}
    >
      {(shown) => <TopTable data={shown} measure={measure} />}
    </Panel>
  );
}

function TopTable({ data, measure }: { data: OverviewData; measure: Measure }) {
  const show = (amount: number | null) => (amount === null ? "–" : measure === "hours" ? fmt.number(amount) : fmt.wholeAmount(amount));
  const most = Math.max(...data.top.map((row) => amountOf(row, measure) ?? 0), 1e-9);
  return (
    <table class="rows top-table">
      <thead>
        <tr>
          <th scope="col">{texts("workload")}</th>
          <th scope="col" class="top-kind">{texts("signature")}</th>
          <th scope="col" class="number">{texts("for")}</th>
          {measure !== "none" && <th scope="col" class="number">{unitOf(data, measure)}</th>}
        </tr>
      </thead>
      <tbody>
        {data.top.map((row) => (
          <tr key={`${row.cluster}/${row.namespace}/${row.kind}/${row.name}`}>
            <td class="top-name">
              <WorkloadLink of={row} />
              <small>{[row.users.join(", "), gpuText(row), row.snoozed_until && texts("snoozed", { time: fmt.time(new Date(row.snoozed_until), "short") })].filter(Boolean).join(" · ")}</small>
            </td>
            <td class="top-kind"><SignatureBadge signature={row.signature} /></td>
            <td class="number">{row.idle_since ? <Since at={row.idle_since} /> : <span class="secondary">{texts("partly")}</span>}</td>
            {measure !== "none" && (
              <td class="number top-cost">
                <strong>{show(amountOf(row, measure))}</strong>
                <AmountLine ratio={(amountOf(row, measure) ?? 0) / most} />
              </td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function unitOf({ currency, waste }: OverviewData, measure: Measure): string {
  if (measure === "hours") return texts("idle-hours");
  return measure === "spell" ? texts("cost-spell", { currency }) : texts("cost-of", { currency, days: waste.days });
}

function gpuText(row: Row): string {
  return texts("gpu-count", { gpus: fmt.gpus(row.gpus), model: row.models.map(fmt.model).join(", ") || "GPU" });
}
