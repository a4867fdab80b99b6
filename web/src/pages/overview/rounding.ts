/** Round to whole numbers that still add up to the rounded total (largest remainder). */
export function roundToSum(values: readonly number[]): number[] {
  const floors = values.map(Math.floor);
  const missing = Math.round(values.reduce((sum, each) => sum + each, 0)) - floors.reduce((sum, each) => sum + each, 0);
  const order = values.map((_, index) => index).sort((a, b) => values[b]! - floors[b]! - (values[a]! - floors[a]!));
  for (const index of order.slice(0, Math.max(0, missing))) floors[index]!++;
  return floors;
}

/** A small fleet is counted in shares, a large one in whole GPUs. */
export const WHOLE_FROM = 20;

interface Gpus {
  readonly total: number | null;
  readonly allocated: number;
  readonly active: number;
  /** A part of the active ones. */
  readonly suspicious: number;
  readonly idle: number;
  readonly unknown: number;
  readonly free: number | null;
  readonly effective: number;
}

/** What the bar shows, in its order: a GPU counts once. */
export function listParts({ active, suspicious, idle, unknown, free }: Gpus): number[] {
  return [Math.max(0, active - suspicious), suspicious, idle, unknown, free ?? 0];
}

/** The numbers of the funnel, rounded as the bar above it rounds them; none is larger than the one before. */
export function countSteps(gpus: Gpus) {
  const { total, allocated, active, free, effective } = gpus;
  if (allocated + (free ?? 0) < WHOLE_FROM) return { total: total ?? 0, allocated, active, effective };
  const held = Math.round(allocated);
  const [real, suspicious] = roundToSum(listParts(gpus));
  const used = Math.min(held, real! + suspicious!);
  return { total: Math.round(total ?? 0), allocated: held, active: used, effective: active > effective ? Math.min(used, Math.round(effective)) : used };
}

/** A step of 1, 2 or 5 times a power of ten that divides `most` into about `parts`. */
export function niceStep(most: number, parts: number): number {
  const rough = most / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((each) => each * power >= rough) ?? 10;
  return factor * power;
}
