/** One row per group: GPU-hours, idle part, trend, score, money, and the workload that wastes the most. */
import { AmountLine, StackedBar } from "../../components/bar";
import { workloadLink } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { changeQuery, formatRoute, route } from "../../router";
import { type Amounts, type Details, hasPrices, idleRatio, idleTrend, type Report, type Row, type SortKey, sortRows, totalCost } from "./groups";
import { columnName, groupName } from "./names";
import { TrendLine } from "./trend-line";
import { texts } from "./texts";

const HOUR_MS = 3_600_000;
/** A smaller part would be a dot. */
const LEAST_SHOWN = 0.02;
const DEFAULT_SORT: SortKey = "idle-cost";
const SORT_KEYS: readonly SortKey[] = ["name", "hours", "idle", "score", "cost", "idle-cost", "change"];

interface Props {
  readonly report: Report;
  readonly rows: readonly Row[];
  readonly details: Details | undefined;
  readonly by: string;
}

export function GroupTable({ report, rows, details, by }: Props) {
  const { query } = route.value;
  const asked = (query["sort"] ?? "").replace(/^-/, "") as SortKey;
  const sort = SORT_KEYS.includes(asked) ? asked : DEFAULT_SORT;
  const isAscending = (query["sort"] ?? "").startsWith("-") === (sort !== "name") && query["sort"] !== undefined;
  const sorted = sortRows(rows, sort, isAscending);
  const isPriced = hasPrices(report);
  const most = Math.max(...rows.map((row) => wasteOf(row.group.amounts, isPriced) ?? 0), 1e-9);
  const mostHours = Math.max(...rows.map((row) => row.group.amounts.allocated_gpu_ms), 1);
  const currency = report.currency;
  const isHourly = (details?.step_ms ?? 0) === HOUR_MS;
  const head = { sort, isAscending };
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={texts("table")}>
      <table class="rows teams-table">
        <thead>
          <tr>
            <SortHead {...head} column="name" text={columnName(by)} />
            <SortHead {...head} column="hours" text={texts("col-hours")} class="number" />
            <SortHead {...head} column="idle" text={texts("col-idle")} class="number" />
            <SortHead {...head} column="change" text={texts(isHourly ? "col-trend-hours" : "col-trend")} class="trend-head" />
            <SortHead {...head} column="score" text={texts("col-score")} class="number" />
            {isPriced && <SortHead {...head} column="cost" text={texts("col-cost", { currency })} class="number" />}
            <SortHead {...head} column="idle-cost" text={isPriced ? texts("col-idle-cost", { currency }) : texts("idle-hours")} class="number" />
            <th class="waste-head">{texts("col-waste")}</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => (
            <GroupRow key={row.key} row={row} by={by} isPriced={isPriced} most={most} mostHours={mostHours} trend={idleTrend(row, report, details)} />
          ))}
          {report.others && <SumRow name={texts("others", { n: Number(report.others.name) })} amounts={report.others.amounts} isPriced={isPriced} />}
        </tbody>
        <tfoot>
          <SumRow name={texts("total")} amounts={report.total} isPriced={isPriced} />
        </tfoot>
      </table>
    </div>
  );
}

interface HeadProps {
  readonly column: SortKey;
  readonly text: string;
  readonly sort: SortKey;
  readonly isAscending: boolean;
  readonly class?: string;
}

function SortHead({ column, text, sort, isAscending, class: className = "" }: HeadProps) {
  const isSorted = column === sort;
  const turned = isSorted ? !isAscending : column === "name";
  const value = turned === (column === "name") ? column : `-${column}`;
  return (
    <th class={className} aria-sort={isSorted ? (isAscending ? "ascending" : "descending") : undefined}>
      <button type="button" class="sort" title={texts("sort-by", { column: text })} onClick={() => changeQuery({ sort: value })}>
        {text}
        {isSorted && <span aria-hidden="true">{isAscending ? " ↑" : " ↓"}</span>}
      </button>
    </th>
  );
}

interface RowProps {
  readonly row: Row;
  readonly by: string;
  readonly isPriced: boolean;
  readonly most: number;
  readonly mostHours: number;
  readonly trend: readonly number[];
}

function GroupRow({ row, by, isPriced, most, mostHours, trend }: RowProps) {
  const { page, path, query } = route.value;
  const { amounts } = row.group;
  const isChosen = query["group"] === row.key;
  const open = () => changeQuery({ group: isChosen ? "" : row.key });
  const name = groupName(row.group, by);
  const top = row.detail?.workloads[0];
  return (
    <tr class={isChosen ? "row chosen" : "row"} onClick={open}>
      <td class="teams-name">
        <a
          class="plain-link"
          href={formatRoute(page, path, { ...query, group: row.key })}
          aria-current={isChosen ? "true" : undefined}
          onClick={(event) => {
            event.preventDefault();
            event.stopPropagation();
            open();
          }}
        >
          {name}
        </a>
        <HoursBar amounts={amounts} mostHours={mostHours} name={name} />
      </td>
      <td class="number">{fmt.number(amounts.allocated_gpu_ms / HOUR_MS)}</td>
      <td class="number">{percentOf(idleRatio(amounts))}</td>
      <td class="trend">
        <TrendLine values={trend} />
        <Change ratio={row.group.idle_change_ratio ?? null} />
      </td>
      <td class="number">{amounts.mean_score === null ? "–" : fmt.number(amounts.mean_score)}</td>
      {isPriced && <td class="number">{amountOf(totalCost(amounts))}</td>}
      <td class="number idle-cost">
        <strong>{showWaste(amounts, isPriced)}</strong>
        <AmountLine ratio={(wasteOf(amounts, isPriced) ?? 0) / most} />
      </td>
      <td class="waste">
        {top && (
          <a class="plain-link" href={workloadLink(top)} onClick={(event) => event.stopPropagation()}>
            {top.name}
            <small>{[top.kind, top.user].filter(Boolean).join(" · ")}</small>
          </a>
        )}
      </td>
    </tr>
  );
}

/** The hours of a group as a bar: as long as they are many, in the colours of what they were. */
function HoursBar({ amounts, mostHours, name }: { amounts: Amounts; mostHours: number; name: string }) {
  const hours = (value: number) => value / HOUR_MS;
  const label = `${name}: ${texts("chart-label", { active: fmt.number(hours(amounts.active_gpu_ms)), idle: fmt.number(hours(amounts.idle_gpu_ms)) })}`;
  return (
    <div class="hours-bar" style={{ width: `${Math.max(3, (amounts.allocated_gpu_ms / mostHours) * 100)}%` }}>
      <StackedBar
        label={label}
        parts={[
          { kind: "active", value: hours(amounts.active_gpu_ms) },
          { kind: "idle", value: hours(amounts.idle_gpu_ms) },
          { kind: "unknown", value: amounts.unknown_gpu_ms > amounts.allocated_gpu_ms * LEAST_SHOWN ? hours(amounts.unknown_gpu_ms) : 0 },
        ]}
      />
    </div>
  );
}

function SumRow({ name, amounts, isPriced }: { name: string; amounts: Amounts; isPriced: boolean }) {
  return (
    <tr class="sum">
      <td>{name}</td>
      <td class="number">{fmt.number(amounts.allocated_gpu_ms / HOUR_MS)}</td>
      <td class="number">{percentOf(idleRatio(amounts))}</td>
      <td />
      <td class="number">{amounts.mean_score === null ? "–" : fmt.number(amounts.mean_score)}</td>
      {isPriced && <td class="number">{amountOf(totalCost(amounts))}</td>}
      <td class="number idle-cost">
        <strong>{showWaste(amounts, isPriced)}</strong>
      </td>
      <td class="waste" />
    </tr>
  );
}

export function Change({ ratio }: { ratio: number | null }) {
  if (ratio === null) return <span class="change secondary">–</span>;
  const sign = Math.abs(ratio) < 0.005 ? "±" : ratio > 0 ? "+" : "−";
  const tone = sign === "+" ? "change-more" : sign === "−" ? "change-less" : "secondary";
  const shown = Math.abs(ratio) > 9.99 ? "> 999 %" : fmt.percent(Math.abs(ratio), 0);
  return <span class={`change ${tone}`}>{`${sign}${shown}`}</span>;
}

/** The idle cost in millionths, or the idle GPU-hours where there are no prices. */
function wasteOf(amounts: Amounts, isPriced: boolean): number | null {
  return isPriced ? (amounts.idle_cost_micros ?? null) : amounts.idle_gpu_ms / HOUR_MS;
}

function showWaste(amounts: Amounts, isPriced: boolean): string {
  return isPriced ? amountOf(amounts.idle_cost_micros) : fmt.number(amounts.idle_gpu_ms / HOUR_MS);
}

function amountOf(micros: number | null | undefined): string {
  return micros === null || micros === undefined ? "–" : fmt.amount(micros);
}

function percentOf(ratio: number | null): string {
  return ratio === null ? "–" : fmt.percent(ratio);
}
