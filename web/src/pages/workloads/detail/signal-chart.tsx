import { useMemo } from "preact/hooks";
import { useSize } from "../../../components/size";
import { texts } from "../texts";
import { makePath, type Point, valueAt } from "./signal-lines";

export interface Line {
  readonly id: string;
  readonly points: readonly Point[];
}

interface Props {
  readonly name: string;
  readonly label: string;
  readonly lines: readonly Line[];
  readonly from: number;
  readonly to: number;
  readonly most: number | null;
  readonly format: (value: number) => string;
  readonly idleFrom: number | null;
  readonly windowFrom: number;
  readonly at: number | null;
  readonly onAt: (at: number | null) => void;
}

const HEIGHT = 44;
const PAD = 3;

export function SignalChart({ name, label, lines, from, to, most, format, idleFrom, windowFrom, at, onAt }: Props) {
  const [root, { width }] = useSize<HTMLDivElement>();
  const top = most ?? Math.max(...lines.flatMap((line) => line.points.map((point) => point[1])), 1e-9) * 1.15;
  const scale = { from, to, most: top, width, height: HEIGHT - 2 * PAD };
  const paths = useMemo(() => (width ? lines.map((line) => makePath(line.points, scale)) : []), [lines, from, to, top, width]);
  const x = (time: number) => Math.max(0, Math.min(width, ((time - from) / (to - from || 1)) * width));
  const values = lines.flatMap((line) => valueAt(line.points, at ?? to) ?? []);
  const shown = values.length ? range(values, format) : "–";
  const highest = Math.max(...lines.flatMap((line) => line.points.map((point) => point[1])));
  const move = (event: PointerEvent) => {
    const bounds = (event.currentTarget as Element).getBoundingClientRect();
    onAt(from + ((event.clientX - bounds.left) / bounds.width) * (to - from));
  };
  return (
    <div class="signal">
      <div class="signal-value">
        <span>{label}</span>
        <strong>{shown}</strong>
      </div>
      <div ref={root} class="signal-chart" role="img" aria-label={texts("signals-label", { signal: label, last: shown, most: format(highest) })}>
        {width > 0 && (
          <svg width={width} height={HEIGHT} onPointerMove={move} onPointerLeave={() => onAt(null)}>
            {idleFrom !== null && idleFrom < to && <rect class="signal-idle" x={x(idleFrom)} y="0" width={width - x(idleFrom)} height={HEIGHT} />}
            <rect class="signal-window" x={x(windowFrom)} y={HEIGHT - 2} width={Math.max(2, width - x(windowFrom))} height="2" />
            <line class="chart-line" x1="0" x2={width} y1={HEIGHT - PAD} y2={HEIGHT - PAD} />
            <g transform={`translate(0 ${PAD})`} class={`signal-line signal-line-${name}`}>
              {paths.map((path, index) => <path key={lines[index]!.id} d={path} />)}
            </g>
            {at !== null && <line class="signal-cursor" x1={x(at)} x2={x(at)} y1="0" y2={HEIGHT} />}
          </svg>
        )}
      </div>
    </div>
  );
}

/** `46.9 GiB`, or `12 % – 80 %` where GPUs differ. */
function range(values: readonly number[], format: (value: number) => string): string {
  const [low, high] = [format(Math.min(...values)), format(Math.max(...values))];
  return low === high ? low : `${low} – ${high}`;
}
