/** How old and how complete the data is, at all times. */
import { isConnected, lastCycle } from "../api/live";
import { useResource } from "../api/resources";
import { fmt, t } from "../i18n";
import { useNow } from "./time";

/** Three intervals: the analyzer itself calls a result stale then. */
const STALE_INTERVALS = 3;

export function Freshness() {
  const { data, status } = useResource("/api/v1/health");
  const now = useNow(5000);
  const at = lastCycle.value?.at ?? data?.result?.at;
  if (!at) return <span class="freshness">{t("fresh.waiting")}</span>;
  const date = new Date(at);
  const age = (now - date.getTime()) / 1000;
  const interval = data?.cycles.interval_seconds ?? 60;
  const isOffline = status === "stale" || (!isConnected.value && age > 2 * interval);
  const isStale = age > STALE_INTERVALS * interval + 60;
  const tone = isOffline ? "fault" : isStale || data?.status !== "healthy" ? "idle" : "good";
  const hint = isOffline ? t("fresh.offline", { time: fmt.time(date, "time") }) : isStale ? t("fresh.stale", { age: fmt.duration(age) }) : "";
  return (
    <span class="freshness" role="status" title={`${hint} ${fmt.utc(date)}`.trim()}>
      <i class={`dot dot-${tone}`} aria-hidden="true" />
      <span>
        {isOffline && <strong class="freshness-lost" title={hint}>{t("fresh.lost")} · </strong>}
        {t("fresh.as-of", { time: fmt.time(date, "time") })}
        {!isOffline && data?.measured_coverage != null && <span class="freshness-complete"> · {t("fresh.complete", { percent: fmt.percent(data.measured_coverage) })}</span>}
      </span>
    </span>
  );
}
