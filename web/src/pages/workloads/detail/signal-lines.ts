/** Lines of a chart as paths: gaps stay gaps, and more points than pixels become the range of each pixel. Pure. */
export type Point = readonly [number, number];

export interface Scale {
  readonly from: number;
  readonly to: number;
  readonly most: number;
  readonly width: number;
  readonly height: number;
}

const GAP_STEPS = 3.5;

/** Between two samples, as most of them are. */
export function typicalStep(points: readonly Point[]): number {
  const steps = points.slice(1).map((point, index) => point[0] - points[index]![0]).sort((a, b) => a - b);
  return steps[Math.floor(steps.length / 2)] ?? 0;
}

export function makePath(points: readonly Point[], scale: Scale): string {
  const limit = typicalStep(points) * GAP_STEPS || Infinity;
  const thinned = thin(points, scale);
  let path = "";
  let before = -Infinity;
  for (const [time, value] of thinned) {
    const x = ((time - scale.from) / (scale.to - scale.from || 1)) * scale.width;
    const y = scale.height - (Math.min(value, scale.most) / (scale.most || 1)) * scale.height;
    path += `${time - before > limit ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    before = time;
  }
  return path;
}

/** Lowest and highest of each pixel, in their order: a peak is never averaged away. */
export function thin(points: readonly Point[], { from, to, width }: Scale): Point[] {
  const inside = points.filter(([time]) => time >= from && time <= to);
  if (inside.length <= width * 2) return inside;
  const kept: Point[] = [];
  const pixel = (time: number) => Math.floor(((time - from) / (to - from)) * width);
  for (let start = 0; start < inside.length; ) {
    let end = start;
    let low = start;
    let high = start;
    while (end < inside.length && pixel(inside[end]![0]) === pixel(inside[start]![0])) {
      if (inside[end]![1] < inside[low]![1]) low = end;
      if (inside[end]![1] > inside[high]![1]) high = end;
      end++;
    }
    kept.push(...[...new Set([low, high])].sort((a, b) => a - b).map((at) => inside[at]!));
    start = end;
  }
  return kept;
}

/** The last value at or before a time, unless it is older than a gap. */
export function valueAt(points: readonly Point[], at: number): number | null {
  const limit = typicalStep(points) * GAP_STEPS || Infinity;
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle]![0] <= at) low = middle + 1;
    else high = middle;
  }
  const found = points[low - 1];
  return found && at - found[0] <= limit ? found[1] : null;
}
