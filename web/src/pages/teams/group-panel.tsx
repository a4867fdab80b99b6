/** One group, or all of them: facts, GPU-hours over time, and the workloads that waste the most. */
import { useEffect, useRef } from "preact/hooks";
import type { ResourceView } from "../../api/resources";
import { AmountLine } from "../../components/bar";
import { DataState, PanelHead } from "../../components/panel";
import { WorkloadLink, type WorkloadKey } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { changeQuery, route } from "../../router";
import { Bars, type Step } from "./bars";
import { type Amounts, type Details, hasPrices, joinRows, type Report, type Row, totalCost } from "./groups";
import { Change } from "./group-table";
import { groupName } from "./names";
import { texts } from "./texts";

const HOUR_MS = 3_600_000;

interface Props {
  readonly report: ResourceView<Report>;
  readonly details: ResourceView<Details>;
  readonly by: string;
}

/** The chosen group; undefined: all of them. */
function findRow(report: Report, details: Details | undefined): Row | undefined {
  const key = route.value.query["group"];
  return key === undefined ? undefined : joinRows(report, details).find((each) => each.key === key);
}

export function TimePanel({ report, details, by }: Props) {
  return (
    <section class="panel">
      <DataState resource={report} lines={6}>
        {(data) => {
          const row = findRow(data, details.data);
          const stepMs = row ? (details.data?.step_ms ?? data.step_ms) : data.step_ms;
          const name = row ? groupName(row.group, by) : texts("all");
          return (
            <>
              <PanelHead title={`${texts(stepMs === HOUR_MS ? "chart-hours" : "chart")} · ${name}`} />
              <Bars steps={row ? stepsOf(row, details.data) : pointsOf(data)} stepMs={stepMs} />
            </>
          );
        }}
      </DataState>
    </section>
  );
}

export function GroupPanel({ report, details, by }: Props) {
  const key = route.value.query["group"];
  const panel = useRef<HTMLElement>(null);
  // On a narrow page the panel is below the list.
  useEffect(() => {
    if (key !== undefined && matchMedia("(max-width: 1240px)").matches) panel.current?.scrollIntoView({ block: "start" });
  }, [key]);
  useEffect(() => {
    if (key === undefined) return;
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && !event.defaultPrevented && changeQuery({ group: "" });
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [key]);
  return (
    <section class="panel teams-detail" ref={panel}>
      <DataState resource={report} lines={10}>
        {(data) => <Content report={data} details={details} row={findRow(data, details.data)} by={by} />}
      </DataState>
    </section>
  );
}

function Content({ report, details, row, by }: { report: Report; details: ResourceView<Details>; row: Row | undefined; by: string }) {
  const amounts = row?.group.amounts ?? report.total;
  const isPriced = hasPrices(report);
  const change = row ? (row.group.idle_change_ratio ?? null) : (report.trend?.idle_change_ratio ?? null);
  return (
    <>
      <PanelHead
        title={<span class="teams-title">{row ? groupName(row.group, by) : texts("all")}</span>}
        aside={row && <button type="button" class="button button-quiet" onClick={() => changeQuery({ group: "" })}>{texts("close")}</button>}
      />
      <Facts amounts={amounts} currency={report.currency} change={change} isPriced={isPriced} />
      <h3 class="teams-section">{texts(isPriced ? "wasters" : "wasters-hours")}</h3>
      {row ? (
        <DataState resource={details}>{() => <Wasters items={wastersOf(row)} currency={isPriced ? report.currency : ""} />}</DataState>
      ) : (
        <Wasters items={allWasters(report)} currency={isPriced ? report.currency : ""} />
      )}
    </>
  );
}

function Facts({ amounts, currency, change, isPriced }: { amounts: Amounts; currency: string; change: number | null; isPriced: boolean }) {
  const cost = totalCost(amounts);
  const money = (micros: number | null | undefined) => (micros === null || micros === undefined ? texts("unpriced") : fmt.money(micros, currency));
  return (
    <dl class="teams-facts">
      {isPriced ? (
        <>
          <Fact name={texts("fact-cost")}>{money(cost)}</Fact>
          <Fact name={texts("fact-idle-cost")}><span class="idle-text">{money(amounts.idle_cost_micros)}</span></Fact>
          <Fact name={texts("fact-change")}><Change ratio={change} /></Fact>
          <Fact name={texts("fact-hours")}>{fmt.number(amounts.allocated_gpu_ms / HOUR_MS)}</Fact>
        </>
      ) : (
        <>
          <Fact name={texts("fact-hours")}>{fmt.number(amounts.allocated_gpu_ms / HOUR_MS)}</Fact>
          <Fact name={texts("fact-idle-cost")}><span class="idle-text">{fmt.number(amounts.idle_gpu_ms / HOUR_MS)}</span></Fact>
          <Fact name={texts("fact-change")}><Change ratio={change} /></Fact>
        </>
      )}
      {amounts.ineffective_gpu_ms > 0 && (
        <>
          <Fact name={texts("fact-effective")}>{fmt.number(amounts.effective_gpu_ms / HOUR_MS)}</Fact>
          <Fact name={texts("fact-ineffective")}>{isPriced ? money(amounts.ineffective_cost_micros) : fmt.number(amounts.ineffective_gpu_ms / HOUR_MS)}</Fact>
        </>
      )}
      <Fact name={texts("fact-score")}>{amounts.mean_score === null ? "–" : fmt.number(amounts.mean_score)} <small>{texts("of-100")}</small></Fact>
      <Fact name={texts("fact-energy")}>{amounts.energy_mj === null ? "–" : `${fmt.number(amounts.energy_mj / 3.6e9)} kWh`}</Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function stepsOf(row: Row, details: Details | undefined): readonly Step[] {
  const { detail } = row;
  if (!detail || !details) return [];
  return details.at_ms.map((at, index) => ({
    at,
    active: ((detail.active_gpu_ms[index] ?? 0) - (detail.ineffective_gpu_ms[index] ?? 0)) / HOUR_MS,
    ineffective: (detail.ineffective_gpu_ms[index] ?? 0) / HOUR_MS,
    idle: (detail.idle_gpu_ms[index] ?? 0) / HOUR_MS,
    unknown: (detail.unknown_gpu_ms[index] ?? 0) / HOUR_MS,
  }));
}

function pointsOf(report: Report): readonly Step[] {
  return report.points.map((point) => ({
    at: point.at_ms,
    active: (point.active_gpu_ms - point.ineffective_gpu_ms) / HOUR_MS,
    ineffective: point.ineffective_gpu_ms / HOUR_MS,
    idle: point.idle_gpu_ms / HOUR_MS,
    unknown: point.unknown_gpu_ms / HOUR_MS,
  }));
}

interface Waster extends WorkloadKey {
  readonly user: string;
  readonly hours: number;
  readonly micros: number | null;
}

function wastersOf(row: Row): readonly Waster[] {
  return (row.detail?.workloads ?? []).map((each) => ({ ...each, hours: each.idle_gpu_ms / HOUR_MS, micros: each.idle_cost_micros }));
}

function allWasters(report: Report): readonly Waster[] {
  return report.wasters.map(({ kind, namespace, name, cluster = "", user, amounts }) => ({
    kind, namespace, name, cluster, user, hours: amounts.idle_gpu_ms / HOUR_MS, micros: amounts.idle_cost_micros,
  }));
}

/** `currency`: empty where there are no prices. */
function Wasters({ items, currency }: { items: readonly Waster[]; currency: string }) {
  if (items.length === 0) return <p class="state state-empty">{texts("no-waste")}</p>;
  const amountOf = (each: Waster) => (currency ? each.micros : each.hours);
  const most = Math.max(...items.map((each) => amountOf(each) ?? 0), 1e-9);
  return (
    <table class="rows wasters">
      <thead>
        <tr>
          <th>{texts("workload")}</th>
          <th class="number">{texts("idle-hours")}</th>
          {currency && <th class="number">{texts("col-cost", { currency })}</th>}
        </tr>
      </thead>
      <tbody>
        {items.map((each) => (
          <tr key={`${each.cluster}/${each.namespace}/${each.kind}/${each.name}`}>
            <td class="top-name">
              <WorkloadLink of={each} />
              <small>{[each.kind, each.user].filter(Boolean).join(" · ")}</small>
            </td>
            {currency && <td class="number">{fmt.number(each.hours)}</td>}
            <td class="number idle-cost">
              <strong>{!currency ? fmt.number(each.hours) : each.micros === null ? "–" : fmt.amount(each.micros)}</strong>
              <AmountLine ratio={(amountOf(each) ?? 0) / most} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
