/** Every signal over time, one line per GPU, with the idle spell shaded. */
import { useState } from "preact/hooks";
import { useResource } from "../../../api/resources";
import { DataState } from "../../../components/panel";
import { Segments } from "../../../components/segments";
import { type WorkloadKey, workloadParameters } from "../../../components/workload-link";
import { fmt } from "../../../i18n";
import { texts, type WorkloadText } from "../texts";
import type { DetailData } from "./detail";
import { Section } from "./local-text";
import { type Line, SignalChart } from "./signal-chart";

const RANGES = [10_800, 345_600, 1_209_600] as const;
type Range = (typeof RANGES)[number];

interface Signal {
  readonly name: string;
  readonly label: WorkloadText;
  readonly format: (value: number) => string;
  /** The top of the scale, if it does not follow from the samples. */
  readonly most: (data: DetailData) => number | null;
}

const SIGNALS: readonly Signal[] = [
  { name: "core_ratio", label: "signal-core_ratio", format: (value) => fmt.percent(value), most: () => 1 },
  { name: "sm_active_ratio", label: "signal-sm_active_ratio", format: (value) => fmt.percent(value), most: () => 1 },
  { name: "engine_ratio", label: "signal-engine_ratio", format: (value) => fmt.percent(value), most: () => 1 },
  { name: "memory_copy_ratio", label: "signal-memory_copy_ratio", format: (value) => fmt.percent(value), most: () => 1 },
  { name: "memory_used_bytes", label: "signal-memory_used_bytes", format: fmt.bytes, most: (data) => mostOf(data, (one) => one.memory_total_bytes) },
  { name: "power_watts", label: "signal-power_watts", format: (value) => `${fmt.number(value)}\u00a0W`, most: () => null },
];

type Allocation = DetailData["allocations"][number]["allocation"];

function mostOf(data: DetailData, read: (one: Allocation) => number | null): number | null {
  const known = data.allocations.flatMap((one) => read(one.allocation) ?? []);
  return known.length ? Math.max(...known) : null;
}

export function Signals({ of: key, data }: { of: WorkloadKey; data: DetailData }) {
  const [range, setRange] = useState<Range>(10_800);
  const series = useResource("/api/v1/workloads/{kind}/{namespace}/{name}/series", { ...workloadParameters(key), seconds: range });
  const [at, setAt] = useState<number | null>(null);
  const choices = RANGES.map((value) => ({ value, text: texts(`range-${value}`) }));
  return (
    <Section title={texts("signals")} aside={<Segments label={texts("signals")} choices={choices} value={range} onChoose={setRange} />}>
      <DataState resource={series} lines={5} isEmpty={(shown) => !shown.courses.some((course) => Object.values(course.lines).some((line) => line.length))} empty={texts("signals-empty")}>
        {(shown) => <Charts data={data} courses={shown.courses} until={Date.parse(shown.result.at) / 1000} range={range} at={at} onAt={setAt} />}
      </DataState>
    </Section>
  );
}

interface ChartsProps {
  readonly data: DetailData;
  readonly courses: readonly { readonly allocation: string; readonly lines: Readonly<Record<string, readonly (readonly [number, number])[]>> }[];
  readonly until: number;
  readonly range: number;
  readonly at: number | null;
  readonly onAt: (at: number | null) => void;
}

function Charts({ data, courses, until, range, at, onAt }: ChartsProps) {
  const linesOf = (name: string): Line[] => courses.flatMap((course) => (course.lines[name]?.length ? [{ id: course.allocation, points: course.lines[name] }] : []));
  const first = Math.min(...courses.flatMap((course) => Object.values(course.lines).map((line) => line[0]?.[0] ?? Infinity)));
  // Samples that are not stored leave no empty chart: it begins with the first one, and says so.
  const isShort = first > until - range + range * 0.1;
  const from = isShort ? first : until - range;
  const idleFrom = data.workload.idle_since ? Date.parse(data.workload.idle_since) / 1000 : null;
  const window = data.result.window_seconds;
  const shown = SIGNALS.filter((signal) => linesOf(signal.name).length);
  return (
    <div class="signals">
      {shown.map((signal) => (
        <SignalChart
          key={signal.name}
          name={signal.name}
          label={texts(signal.label)}
          lines={linesOf(signal.name)}
          from={from}
          to={until}
          most={signal.most(data)}
          format={signal.format}
          idleFrom={idleFrom}
          windowFrom={until - window}
          at={at}
          onAt={onAt}
        />
      ))}
      <TimeAxis from={from} to={until} at={at} />
      <p class="signal-legend">
        {idleFrom !== null && <span><i class="swatch swatch-idle" aria-hidden="true" /> {texts("legend-idle")}</span>}
        <span><i class="swatch swatch-window" aria-hidden="true" /> {texts("legend-window", { duration: fmt.duration(window) })}</span>
      </p>
      {isShort && <p class="secondary small">{texts("signals-short", { time: fmt.time(new Date(first * 1000), "short") })}</p>}
    </div>
  );
}

function TimeAxis({ from, to, at }: { from: number; to: number; at: number | null }) {
  const style = to - from > 2 * 86_400 ? "day" : to - from > 43_200 ? "short" : "minute";
  const show = (seconds: number) => fmt.time(new Date(seconds * 1000), style);
  return (
    <div class="signal-axis" aria-hidden="true">
      <span>{show(from)}</span>
      <span>{at === null ? "" : fmt.time(new Date(at * 1000), "short")}</span>
      <span>{show(to)}</span>
    </div>
  );
}
