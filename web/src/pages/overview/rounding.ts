/** Round to whole numbers that still add up to the rounded total (largest remainder). */
export function roundToSum(values: readonly number[]): number[] {
  const floors = values.map(Math.floor);
  const missing = Math.round(values.reduce((sum, each) => sum + each, 0)) - floors.reduce((sum, each) => sum + each, 0);
  const order = values.map((_, index) => index).sort((a, b) => values[b]! - floors[b]! - (values[a]! - floors[a]!));
  for (const index of order.slice(0, Math.max(0, missing))) floors[index]!++;
  return floors;
}

/** A step of 1, 2 or 5 times a power of ten that divides `most` into about `parts`. */
export function niceStep(most: number, parts: number): number {
  const rough = most / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((each) => each * power >= rough) ?? 10;
  return factor * power;
}
