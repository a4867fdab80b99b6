/** Saving against regret for different windows. Pure. */
import type { Answer } from "../../api/client";

export type Replay = Answer<"/api/v1/replay">;
export type Totals = Replay["policy"];
export type Release = Replay["releases"][number];

/** The highest share of regretted releases that the product aims at. */
export const MOST_REGRET = 0.15;

/** The best saving for at most each regret, the lowest regret first: what no other window beats in both. */
export function findFrontier(points: readonly Totals[]): Totals[] {
  const sorted = points.filter((each) => each.releases > 0).sort((a, b) => (a.regret ?? 0) - (b.regret ?? 0) || b.gpu_hours - a.gpu_hours);
  const best: Totals[] = [];
  for (const each of sorted) if (!best.length || each.gpu_hours > best.at(-1)!.gpu_hours) best.push(each);
  return best;
}

/** The window that saves the most without more regret than aimed at; the first if there is none. */
export function findBest(points: readonly Totals[]): number {
  let best = -1;
  points.forEach((each, index) => {
    if ((each.regret ?? 0) > MOST_REGRET) return;
    if (best < 0 || each.gpu_hours > points[best]!.gpu_hours) best = index;
  });
  return Math.max(0, best);
}

export interface Scale {
  readonly least: number;
  readonly most: number;
  readonly ticks: readonly number[];
}

/** Round numbers around the values; from 0 unless all of them are far away from it. */
export function makeScale(values: readonly number[], count = 4): Scale {
  const most = Math.max(...values, 0);
  const low = Math.min(...values, most);
  const from = most > 0 && low > most * 0.5 ? low - (most - low) * 0.25 : 0;
  const step = roundUp((most - from || 1) / count);
  const least = Math.max(0, Math.floor(from / step) * step);
  const ticks: number[] = [];
  for (let at = least; ; at += step) {
    ticks.push(at);
    if (at >= most * (1 - 1e-9) && ticks.length > 1) break;
  }
  return { least, most: ticks.at(-1)!, ticks };
}

function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= value * (1 - 1e-9)) ?? 10 * power;
}

export interface Difference {
  readonly hours: number;
  readonly cost: number | null;
  readonly regret: number;
}

export function compare(one: Totals, other: Totals): Difference {
  const cost = one.cost === null || other.cost === null ? null : one.cost - other.cost;
  return { hours: one.gpu_hours - other.gpu_hours, cost, regret: (one.regret ?? 0) - (other.regret ?? 0) };
}
