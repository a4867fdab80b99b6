/** Round steps for an axis that begins at 0: at most four lines. */
export function makeTicks(highest: number): readonly number[] {
  if (!(highest > 0)) return [0, 1];
  const rough = highest / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough)!;
  const count = Math.ceil(highest / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

/** The points of a line in a box of this size; the highest value touches the top. */
export function linePoints(values: readonly number[], width: number, height: number): string {
  const highest = Math.max(...values, 0) || 1;
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  return values.map((value, index) => `${round(index * step)},${round(height - (value / highest) * height)}`).join(" ");
}

const round = (value: number) => Math.round(value * 10) / 10;
