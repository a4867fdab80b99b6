/** GPU-hours over time as stacked bars. The numbers of a bar are in its tooltip, and in a table for screen readers. */
import { fmt } from "../../i18n";
import { makeTicks } from "./scale";
import { texts } from "./texts";

export interface Step {
  readonly at: number;
  /** Without the ineffective part. */
  readonly active: number;
  readonly ineffective: number;
  readonly idle: number;
  readonly unknown: number;
}

const DAY_MS = 86_400_000;
const MOST_LABELS = 8;
/** Less than this of the height cannot be seen. */
const LEAST_SHOWN = 0.012;
const PARTS = ["unknown", "idle", "ineffective", "active"] as const;

export function Bars({ steps, stepMs }: { steps: readonly Step[]; stepMs: number }) {
  const sum = (step: Step) => step.active + step.ineffective + step.idle + step.unknown;
  const ticks = makeTicks(Math.max(...steps.map(sum), 0));
  const top = ticks.at(-1)!;
  const every = Math.ceil(steps.length / MOST_LABELS);
  const digits = top < 3 ? 1 : 0;
  return (
    <div class="bars">
      <div class="bars-axis" aria-hidden="true">
        {ticks.map((tick) => (
          <span key={tick} style={{ bottom: `${(tick / top) * 100}%` }}>{fmt.number(tick, tick % 1 ? 1 : 0)}</span>
        ))}
      </div>
      <div class="bars-plot">
        {ticks.map((tick) => (
          <i key={tick} class="bars-line" style={{ bottom: `${(tick / top) * 100}%` }} />
        ))}
        <ol class="bars-steps">
          {steps.map((step) => {
            const label = `${nameOf(step.at, stepMs)}: ${labelOf(step, digits)}`;
            return (
              <li key={step.at} title={label}>
                <span class="visually-hidden">{label}</span>
                {PARTS.map((part) => step[part] > top * LEAST_SHOWN && <i key={part} class={`fill-${part}`} style={{ height: `${(step[part] / top) * 100}%` }} />)}
              </li>
            );
          })}
        </ol>
      </div>
      <div class="bars-names" aria-hidden="true">
        {steps.map((step, index) => (
          <span key={step.at}>{(steps.length - 1 - index) % every === 0 ? shortName(step.at, stepMs) : ""}</span>
        ))}
      </div>
    </div>
  );
}

function labelOf({ active, ineffective, idle }: Step, digits: number): string {
  const amounts = { active: fmt.number(active + ineffective, digits), idle: fmt.number(idle, digits) };
  return texts("chart-label", amounts) + (ineffective > 0 ? texts("chart-ineffective", { ineffective: fmt.number(ineffective, digits) }) : "");
}

/** Days of the ledger are days of UTC. */
function localDay(at: number): Date {
  const utc = new Date(at);
  return new Date(utc.getUTCFullYear(), utc.getUTCMonth(), utc.getUTCDate(), 12);
}

const nameOf = (at: number, stepMs: number) => (stepMs >= DAY_MS ? fmt.time(localDay(at), "day") : fmt.time(new Date(at), "short"));
const shortName = (at: number, stepMs: number) => (stepMs >= DAY_MS ? String(new Date(at).getUTCDate()) : fmt.time(new Date(at), "minute").slice(0, 2));
