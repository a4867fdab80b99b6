import type { Resource } from "../../api/resources";
import { SignatureBadge } from "../../components/badge";
import { AmountLine } from "../../components/bar";
import { Panel } from "../../components/panel";
import { Since } from "../../components/time";
import { WorkloadLink } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { linkTo } from "../../router";
import type { OverviewData } from "./overview";
import { texts } from "./texts";

type Row = OverviewData["top"][number];

export function TopPanel({ overview }: { overview: Resource<OverviewData> }) {
  const data = overview.data;
  const isPriced = data?.top.some((row) => row.idle_cost_micros !== null) ?? true;
  return (
    <Panel
      class="top-panel"
      title={texts(isPriced ? "top" : "top-unpriced")}
      aside={data && data.idle_workloads > 0 && <a href={linkTo("workloads", [], { q: "state:idle" })}>{texts("top-all", { n: data.idle_workloads })}</a>}
      resource={overview}
      lines={10}
      isEmpty={(shown) => shown.top.length === 0}
      empty={texts("top-empty")}
    >
      {(shown) => <TopTable data={shown} isPriced={isPriced} />}
    </Panel>
  );
}

function TopTable({ data, isPriced }: { data: OverviewData; isPriced: boolean }) {
  const amountOf = (row: Row) => (isPriced ? row.idle_cost_micros : row.idle_gpu_hours) ?? 0;
  const most = Math.max(...data.top.map(amountOf), 1e-9);
  return (
    <table class="rows top-table">
      <thead>
        <tr>
          <th scope="col">{texts("workload")}</th>
          <th scope="col" class="top-kind">{texts("signature")}</th>
          <th scope="col" class="number">{texts("for")}</th>
          <th scope="col" class="number">{isPriced ? texts("cost-of", { currency: data.currency, days: data.waste.days }) : texts("idle-hours")}</th>
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
            <td class="number top-cost">
              <strong>{isPriced ? fmt.wholeAmount(amountOf(row)) : fmt.number(amountOf(row))}</strong>
              <AmountLine ratio={amountOf(row) / most} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function gpuText(row: Row): string {
  return texts("gpu-count", { gpus: fmt.gpus(row.gpus), model: row.models.map(fmt.model).join(", ") || "GPU" });
}
