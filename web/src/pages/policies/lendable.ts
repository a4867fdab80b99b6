/** Lendable GPUs by model and time. Pure. */
import type { Answer } from "../../api/client";

export type LendablePage = Answer<"/api/v1/lendable">;
export type LendableRow = LendablePage["items"][number];
export const HORIZONS = ["1h", "4h", "morning"] as const;
export type Horizon = (typeof HORIZONS)[number];

export interface ModelRow {
  readonly model: string;
  readonly cells: Readonly<Partial<Record<Horizon, LendableRow>>>;
}

/** One row per model, the most lendable for the shortest time first. */
export function groupByModel(items: readonly LendableRow[]): ModelRow[] {
  const rows = new Map<string, Partial<Record<Horizon, LendableRow>>>();
  for (const item of items) rows.set(item.model, { ...rows.get(item.model), [item.horizon]: item });
  const most = (row: ModelRow) => Math.max(...HORIZONS.map((each) => row.cells[each]?.gpus ?? 0));
  return [...rows].map(([model, cells]) => ({ model, cells })).sort((a, b) => most(b) - most(a) || a.model.localeCompare(b.model));
}

export function sumGpus(items: readonly LendableRow[], horizon: Horizon): number {
  return items.reduce((sum, each) => sum + (each.horizon === horizon ? each.gpus : 0), 0);
}
