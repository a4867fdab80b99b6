/** The rows of the page: the groups of a report, joined with what they did over time. Pure. */
import type { Answer } from "../../api/client";

export type Report = Answer<"/api/v1/reports">;
export type ReportGroup = Report["groups"][number];
export type Amounts = Report["total"];
export type Details = Answer<"/api/v1/reports/groups">;
export type GroupDetail = Details["groups"][number];

export interface Row {
  /** The name and the cluster as one key of the address. */
  readonly key: string;
  readonly group: ReportGroup;
  /** undefined: beyond the groups that the API details. */
  readonly detail: GroupDetail | undefined;
}

export const keyOf = (group: { readonly name: string; readonly cluster?: string | undefined }): string =>
  group.cluster ? `${group.cluster}/${group.name}` : group.name;

export function joinRows(report: Report, details: Details | undefined): readonly Row[] {
  const byKey = new Map(details?.groups.map((detail) => [keyOf(detail), detail]));
  return report.groups.map((group) => ({ key: keyOf(group), group, detail: byKey.get(keyOf(group)) }));
}

export type SortKey = "name" | "hours" | "idle" | "score" | "cost" | "idle-cost" | "change";

/** What a column is sorted by; null is last in either direction. */
function sortValue({ group }: Row, key: SortKey): number | string | null {
  const { amounts } = group;
  if (key === "name") return group.name;
  if (key === "hours") return amounts.allocated_gpu_ms;
  if (key === "idle") return idleRatio(amounts);
  if (key === "score") return amounts.mean_score;
  if (key === "cost") return totalCost(amounts);
  if (key === "change") return group.idle_change_ratio;
  return amounts.idle_cost_micros ?? amounts.idle_gpu_ms;
}

export function sortRows(rows: readonly Row[], key: SortKey, isAscending: boolean): readonly Row[] {
  const sign = isAscending ? 1 : -1;
  return [...rows].sort((one, other) => {
    const [a, b] = [sortValue(one, key), sortValue(other, key)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (typeof a === "string" || typeof b === "string") return sign * String(a).localeCompare(String(b));
    return sign * (a - b);
  });
}

export function idleRatio(amounts: Amounts): number | null {
  return amounts.allocated_gpu_ms ? amounts.idle_gpu_ms / amounts.allocated_gpu_ms : null;
}

/** The whole cost; null where a part has no price. */
export function totalCost(amounts: Amounts): number | null {
  const parts = [amounts.active_cost_micros, amounts.idle_cost_micros, amounts.unknown_cost_micros];
  return parts.some((part) => part === null || part === undefined) ? null : parts.reduce<number>((sum, part) => sum + (part ?? 0), 0);
}

/** Whether any group has a price. */
export function hasPrices(report: Report): boolean {
  return report.groups.some((group) => group.amounts.idle_cost_micros != null);
}

/** The idle time of a group by step, without a step that is not over: it would look like a fall. */
export function idleTrend(row: Row, report: Report, details: Details | undefined): readonly number[] {
  if (!details || !row.detail) return [];
  const [first, last] = [report.range.first_ms ?? 0, report.range.last_ms ?? 0];
  const isWhole = (at: number) => at >= first && at + details.step_ms <= last;
  return row.detail.idle_gpu_ms.filter((_, index) => isWhole(details.at_ms[index] ?? 0));
}
