/** One line: what will happen to a workload, and when. */
import { LocalText } from "../components/local-text";
import { useNow } from "../components/time";
import { fmt } from "../i18n";
import { makeForecast, wordOfAction } from "./forecast";
import { texts } from "./texts";
import type { Decision } from "./types";

export function ForecastLine({ of: decision, withReason = true }: { of: Decision; withReason?: boolean }) {
  const forecast = makeForecast(decision);
  const now = useNow(forecast.at !== null && forecast.at - Date.now() < 600_000 ? 1000 : 30_000);
  const word = wordOfAction(decision.action);
  const at = forecast.at === null ? null : new Date(forecast.at);
  const isDue = at !== null && at.getTime() <= now;
  const text =
    forecast.kind === "act" ? texts(`forecast-act-${word}`)
    : forecast.kind === "warn" ? texts("forecast-warn")
    : forecast.kind !== "wait" ? texts(`forecast-${forecast.kind}`)
    : at === null ? texts("forecast-wait")
    : isDue ? texts("forecast-due")
    : texts(`forecast-wait-${word}`, { in: countDown((at.getTime() - now) / 1000) });
  return (
    <span class={`forecast forecast-${forecast.kind}`}>
      <strong title={at ? fmt.utc(at) : undefined}>{text}</strong>
      {withReason && forecast.reason && <small><LocalText text={forecast.reason} /></small>}
    </span>
  );
}

/** With seconds below ten minutes: a person watches it. */
function countDown(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1 || minutes >= 10) return fmt.duration(seconds);
  const rest = Math.floor(seconds % 60);
  return rest ? `${fmt.duration(minutes * 60)} ${fmt.duration(rest)}` : fmt.duration(minutes * 60);
}
