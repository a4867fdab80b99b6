/** Saving against regret: every window as a dot, the best of them joined, present policies and a tried file marked. */
import { useSize } from "../../components/size";
import { fmt } from "../../i18n";
import { findFrontier, makeScale, type Totals } from "./frontier";
import { texts } from "./texts";

const HEIGHT = 260;
const LEFT = 52;
const RIGHT = 16;
const TOP = 22;
const BOTTOM = 40;

interface Props {
  readonly points: readonly Totals[];
  readonly chosen: number;
  readonly onChoose: (index: number) => void;
  readonly present: Totals;
  readonly tried: Totals | undefined;
}

export function FrontierChart({ points, chosen, onChoose, present, tried }: Props) {
  const [root, { width }] = useSize<HTMLDivElement>();
  const all = [...points, present, ...(tried ? [tried] : [])];
  const across = makeScale([0, 0.1, ...all.map((each) => each.regret ?? 0)]);
  const up = makeScale(all.map((each) => each.gpu_hours));
  const x = (each: Totals) => LEFT + 10 + ((each.regret ?? 0) / across.most) * (width - LEFT - RIGHT - 10);
  const y = (each: Totals) => TOP + (1 - (each.gpu_hours - up.least) / (up.most - up.least)) * (HEIGHT - TOP - BOTTOM);
  const best = findFrontier(points);
  const one = points[chosen];
  return (
    <div class="frontier-chart" ref={root}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" aria-label={texts("chart-label", { n: points.length })}>
          {up.ticks.map((tick) => {
            const at = TOP + (1 - (tick - up.least) / (up.most - up.least)) * (HEIGHT - TOP - BOTTOM);
            return (
              <g key={tick}>
                <line class="chart-line" x1={LEFT} x2={width - RIGHT} y1={at} y2={at} />
                <text class="chart-text" x={LEFT - 8} y={at + 4} text-anchor="end">{fmt.number(tick, tick < 10 ? 1 : 0)}</text>
              </g>
            );
          })}
          {across.ticks.map((tick) => (
            <text key={tick} class="chart-text" x={LEFT + 10 + (tick / across.most) * (width - LEFT - RIGHT - 10)} y={HEIGHT - BOTTOM + 18} text-anchor="middle">
              {fmt.percent(tick, 0)}
            </text>
          ))}
          <text class="chart-text" x={0} y={10}>{texts("axis-hours")}</text>
          <text class="chart-text" x={width - RIGHT} y={HEIGHT - 4} text-anchor="end">{texts("axis-regret")}</text>
          <polyline class="frontier-line" points={best.map((each) => `${x(each)},${y(each)}`).join(" ")} />
          {points.map((each, index) => (
            <circle key={each.name} class={`frontier-dot ${index === chosen ? "frontier-chosen" : ""}`} cx={x(each)} cy={y(each)} r={index === chosen ? 7 : 4.5} onClick={() => onChoose(index)}>
              <title>{`${texts("window-of", { duration: windowText(each) })}: ${fmt.number(each.gpu_hours)}, ${fmt.percent(each.regret ?? 0)}`}</title>
            </circle>
          ))}
          <Diamond class="frontier-present" x={x(present)} y={y(present)} title={texts("present")} />
          {tried && <Diamond class="frontier-tried" x={x(tried)} y={y(tried)} title={texts("tried")} />}
          {one && <Label x={x(one)} y={y(one)} width={width} text={windowText(one)} />}
        </svg>
      )}
    </div>
  );
}

export function windowText(each: Totals): string {
  return each.window_minutes === null ? "–" : fmt.duration(each.window_minutes * 60);
}

function Label({ x, y, width, text }: { x: number; y: number; width: number; text: string }) {
  const isLeft = x > width - 120;
  return <text class="frontier-label" x={isLeft ? x - 12 : x + 12} y={y + 4} text-anchor={isLeft ? "end" : "start"}>{text}</text>;
}

function Diamond({ x, y, title, class: className }: { x: number; y: number; title: string; class: string }) {
  return (
    <path class={className} d={`M${x} ${y - 8}l8 8l-8 8l-8-8z`}>
      <title>{title}</title>
    </path>
  );
}
