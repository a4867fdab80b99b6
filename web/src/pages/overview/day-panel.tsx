import { useState } from "preact/hooks";
import type { Resource } from "../../api/resources";
import { useSize } from "../../components/size";
import { Panel } from "../../components/panel";
import { fmt } from "../../i18n";
import { hasLedger } from "../../state/session";
import type { OverviewData } from "./overview";
import { niceStep } from "./rounding";
import { texts } from "./texts";

type Day = OverviewData["days"][number];

export function DayPanel({ overview }: { overview: Resource<OverviewData> }) {
  const [chosen, choose] = useState<number | null>(null);
  const days = overview.data?.days ?? [];
  const day = chosen === null ? undefined : days[chosen];
  return (
    <Panel
      class="day-panel"
      title={texts("days")}
      aside={<span class="secondary small" aria-live="off">{day && readout(day, overview.data!.currency)}</span>}
      resource={overview}
      lines={6}
      isEmpty={(data) => data.days.length === 0}
      empty={texts(hasLedger.value === false ? "no-ledger" : "days-empty")}
    >
      {(data) => (
        <>
          <DayChart days={data.days} chosen={chosen} onChoose={choose} />
          <DayTable days={data.days} />
        </>
      )}
    </Panel>
  );
}

function readout(day: Day, currency: string): string {
  const words = [texts("days-readout", { day: dayName(day), active: fmt.number(day.active), idle: fmt.number(day.idle) })];
  if (day.ineffective > 0) words.push(texts("days-ineffective", { ineffective: fmt.number(day.ineffective) }));
  if (day.idle_cost_micros !== null) words.push(texts("days-cost", { money: fmt.money(day.idle_cost_micros, currency) }));
  if (day.partial) words.push(texts("days-partial"));
  return words.join(" · ");
}

/** Days of the ledger are days of UTC. */
function dayName(day: Day): string {
  return fmt.time(new Date(`${day.day}T12:00:00`), "day");
}

const LEAST_HEIGHT = 236;
const LEFT = 34;
const BOTTOM = 24;
const TOP = 8;

interface ChartProps {
  readonly days: readonly Day[];
  readonly chosen: number | null;
  readonly onChoose: (index: number | null) => void;
}

function DayChart({ days, chosen, onChoose }: ChartProps) {
  const [root, { width, height: room }] = useSize<HTMLDivElement>();
  const height = Math.max(LEAST_HEIGHT, room);
  const most = Math.max(...days.map((day) => day.allocated), 1);
  const step = niceStep(most, 3);
  const top = most * 1.04;
  const scale = (value: number) => ((height - BOTTOM - TOP) * value) / top;
  const pitch = (width - LEFT) / days.length;
  const bar = Math.max(4, Math.min(44, pitch * 0.84));
  const every = Math.max(1, Math.ceil(48 / pitch));
  const lines = Array.from({ length: Math.floor(top / step) + 1 }, (_, index) => index * step);
  const find = (event: PointerEvent) => {
    const x = event.clientX - (event.currentTarget as Element).getBoundingClientRect().left - LEFT;
    const index = Math.floor(x / pitch);
    onChoose(index >= 0 && index < days.length ? index : null);
  };
  return (
    <div ref={root} class="day-chart">
      <svg width={width} height={height} aria-hidden="true" onPointerMove={find} onPointerLeave={() => onChoose(null)}>
        {width > 0 && lines.map((value) => {
          const y = height - BOTTOM - scale(value);
          return (
            <g key={value}>
              <line class="chart-line" x1={LEFT} x2={width} y1={y} y2={y} />
              <text class="chart-text" x={LEFT - 8} y={y + 4} text-anchor="end">{shortNumber(value)}</text>
            </g>
          );
        })}
        {width > 0 && days.map((day, index) => (
          <DayBar
            key={day.day}
            day={day}
            x={LEFT + index * pitch + (pitch - bar) / 2}
            width={bar}
            scale={scale}
            bottom={height - BOTTOM}
            isFaded={chosen !== null && chosen !== index}
            label={(days.length - 1 - index) % every === 0 ? String(Number(day.day.slice(8))) : ""}
          />
        ))}
      </svg>
    </div>
  );
}

function shortNumber(value: number): string {
  return value >= 1000 ? `${fmt.number(value / 1000, 1)}k` : fmt.number(value, 1);
}

interface BarProps {
  readonly day: Day;
  readonly x: number;
  readonly width: number;
  readonly scale: (value: number) => number;
  readonly bottom: number;
  readonly isFaded: boolean;
  readonly label: string;
}

function DayBar({ day, x, width, scale, bottom, isFaded, label }: BarProps) {
  let y = bottom;
  const hours = { ...day, effective: day.active - day.ineffective };
  const parts = (["effective", "ineffective", "idle", "unknown"] as const).map((kind) => ({ kind, height: scale(hours[kind]) }));
  return (
    <g class={isFaded ? "faded" : ""}>
      {parts.map(({ kind, height }) => {
        y -= height;
        const gap = kind === "effective" ? 0 : 2;
        return height > gap + 0.5 && <rect key={kind} class={`chart-${kind}`} x={x} y={y} width={width} height={height - gap} rx={Math.min(3, (height - gap) / 2)} />;
      })}
      {label && <text class="chart-text" x={x + width / 2} y={bottom + BOTTOM - 6} text-anchor="middle">{label}</text>}
    </g>
  );
}

/** The chart for people who do not see it. */
function DayTable({ days }: { days: readonly Day[] }) {
  return (
    <div class="visually-hidden"><table>
      <caption>{texts("days-table")}</caption>
      <tbody>
        {days.map((day) => (
          <tr key={day.day}><th scope="row">{dayName(day)}</th><td>{texts("days-readout", { day: dayName(day), active: fmt.number(day.active), idle: fmt.number(day.idle) })}{day.ineffective > 0 && ` · ${texts("days-ineffective", { ineffective: fmt.number(day.ineffective) })}`}</td></tr>
        ))}
      </tbody>
    </table></div>
  );
}
