/** A small line of a value over time. Its last value has a dot. */
import { linePoints } from "./scale";

const WIDTH = 72;
const HEIGHT = 20;

export function TrendLine({ values }: { values: readonly number[] }) {
  if (values.length < 2) return <svg class="trend-line" width={WIDTH} height={HEIGHT + 4} aria-hidden="true" />;
  const points = linePoints(values, WIDTH - 6, HEIGHT);
  const [x = "0", y = "0"] = points.split(" ").at(-1)!.split(",");
  return (
    <svg class="trend-line" width={WIDTH} height={HEIGHT + 4} viewBox={`-3 -2 ${WIDTH} ${HEIGHT + 4}`} aria-hidden="true">
      <polyline points={points} />
      <circle cx={x} cy={y} r="2" />
    </svg>
  );
}
