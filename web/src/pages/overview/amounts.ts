/** What the list of idle workloads can show of each: money of the period, of the present spell, or GPU-hours. Pure. */

export interface IdleAmounts {
  readonly idle_cost_micros: number | null;
  readonly spell_cost_micros: number | null;
  readonly idle_gpu_hours: number | null;
}

/** `spell`: without the ledger; `hours`: without prices; `none`: without both. */
export type Measure = "cost" | "spell" | "hours" | "none";

const MEASURES = ["cost", "spell", "hours"] as const;

export function findMeasure(rows: readonly IdleAmounts[]): Measure {
  return MEASURES.find((measure) => rows.some((row) => amountOf(row, measure) !== null)) ?? "none";
}

export function amountOf(row: IdleAmounts, measure: Measure): number | null {
  if (measure === "cost") return row.idle_cost_micros;
  if (measure === "spell") return row.spell_cost_micros;
  return measure === "hours" ? row.idle_gpu_hours : null;
}
