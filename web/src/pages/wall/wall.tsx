/** The overview for a wall: large, without controls, refreshed by itself. Escape leads back. */
import { useEffect } from "preact/hooks";
import type { Answer } from "../../api/client";
import { isConnected } from "../../api/live";
import { type ResourceView, useResource } from "../../api/resources";
import { SignatureBadge } from "../../components/badge";
import { AmountLine } from "../../components/bar";
import { DataState } from "../../components/panel";
import { useShortcuts } from "../../components/shortcuts";
import { useSize } from "../../components/size";
import { Since, useNow } from "../../components/time";
import { WorkloadName } from "../../components/workload-link";
import { fmt, language } from "../../i18n";
import { GpuMap } from "../../map/gpu-map";
import { linkTo, navigate, route } from "../../router";
import { cluster, days, useClusters } from "../../state/filters";
import { theme } from "../../state/theme";
import { amountOf, findMeasure, type Measure } from "../overview/amounts";
import { Headline } from "../overview/headline";
import { texts } from "./texts";
import "../overview/overview.css";
import "./wall.css";

/** As in wall.css: fewer rows are shown on a low screen, none is cut. */
const LEAST_ROW_EM = 3.5;

type Overview = Answer<"/api/v1/overview">;
type Idle = Overview["top"][number];

export default function Wall() {
  const overview = useResource("/api/v1/overview", { cluster: cluster.value, days: days.value, language: language.value });
  const leave = () => navigate(linkTo("overview", [], { theme: "" }));
  useShortcuts({ Escape: leave });
  useWallTheme();
  useClusters();
  return (
    <main class="wall" id="content" aria-label={texts("title")}>
      <section class="wall-head">
        <DataState resource={overview} lines={3}>{(data) => <Headline data={data} hasLinks={false} />}</DataState>
      </section>
      <div class="wall-body">
        <MapOfAll />
        <TopIdle overview={overview} />
      </div>
      <Foot overview={overview} />
    </main>
  );
}

/** `theme=dark` in the address: a wall has no menu to choose it, and the choice of a person stays as it is. */
function useWallTheme(): void {
  const wanted = route.value.query["theme"];
  useEffect(() => {
    if (wanted !== "dark" && wanted !== "light") return;
    const before = theme.peek();
    theme.value = wanted;
    return () => void (theme.value = before);
  }, [wanted]);
}

function MapOfAll() {
  const map = useResource("/api/v1/gpu-map", { cluster: cluster.value });
  const [box, { height }] = useSize<HTMLDivElement>();
  return (
    <section class="wall-map" aria-label={texts("map")}>
      <div class="wall-map-box" ref={box}>
        <DataState resource={map} lines={10}>{(data) => height > 0 && <GpuMap data={data} grouping="node" maxHeight={height} />}</DataState>
      </div>
    </section>
  );
}

function TopIdle({ overview }: { overview: ResourceView<Overview> }) {
  const measure = overview.data ? findMeasure(overview.data.top) : "cost";
  return (
    <section class="wall-top">
      <header>
        <h2>{texts(measure === "cost" ? "top" : "top-unpriced")}</h2>
        <span class="secondary">{overview.data && unitOf(overview.data, measure)}</span>
      </header>
      <DataState resource={overview} lines={10} isEmpty={(data) => data.top.length === 0} empty={texts("top-empty")}>
        {(data) => <TopList items={data.top} measure={measure} unit={unitOf(data, measure)} />}
      </DataState>
    </section>
  );
}

function unitOf({ currency, waste }: Overview, measure: Measure): string {
  if (measure === "none") return "";
  if (measure === "spell") return texts("spell-cost", { currency });
  return measure === "cost" ? texts("days-cost", { currency, days: waste.days }) : texts("hours", { days: waste.days });
}

function TopList({ items, measure, unit }: { items: readonly Idle[]; measure: Measure; unit: string }) {
  const most = Math.max(...items.map((item) => amountOf(item, measure) ?? 0), 1e-9);
  const show = (amount: number | null) => (amount === null ? "–" : measure === "hours" ? fmt.number(amount) : fmt.amount(amount));
  const [list, { height }] = useSize<HTMLOListElement>();
  const fits = Math.max(3, Math.floor(height / (LEAST_ROW_EM * (list.current ? Number.parseFloat(getComputedStyle(list.current).fontSize) : 16))));
  return (
    <ol class="wall-list" ref={list} aria-label={unit || texts("top-unpriced")}>
      {items.slice(0, fits).map((item) => (
        <li key={`${item.cluster}/${item.namespace}/${item.kind}/${item.name}`}>
          <div class="wall-name">
            <WorkloadName of={item} short />
            <small>{[item.users[0], ...item.models.slice(0, 1).map((model) => texts("gpu-count", { gpus: fmt.gpus(item.gpus), model: fmt.model(model) }))].filter(Boolean).join(" · ")}</small>
          </div>
          <SignatureBadge signature={item.signature} />
          <span class="wall-since">{item.idle_since ? <Since at={item.idle_since} /> : texts("partly")}</span>
          {measure !== "none" && (
            <span class="wall-cost">
              <strong>{show(amountOf(item, measure))}</strong>
              <AmountLine ratio={(amountOf(item, measure) ?? 0) / most} />
            </span>
          )}
        </li>
      ))}
    </ol>
  );
}

function Foot({ overview }: { overview: ResourceView<Overview> }) {
  const health = useResource("/api/v1/health");
  const now = useNow(1000);
  const at = overview.data?.result.at;
  const isOffline = overview.status === "stale" || overview.status === "error" || (!isConnected.value && health.status === "stale");
  const coverage = health.data?.measured_coverage;
  return (
    <footer class="wall-foot">
      <span class="wall-brand"><img src="./icon.svg" alt="" /> gpusteward</span>
      <span role="status">
        <i class={`dot ${isOffline ? "dot-fault" : ""}`} aria-hidden="true" />
        {isOffline ? texts("offline", { time: fmt.time(new Date(overview.readAt), "minute") }) : at ? texts("as-of", { time: fmt.time(new Date(at), "time") }) : ""}
        {!isOffline && coverage != null && ` · ${texts("complete", { percent: fmt.percent(coverage) })}`}
      </span>
      <span class="wall-problem">{!isOffline && overview.data?.data.problems[0]?.text}</span>
      <span class="wall-leave">{texts("leave")}</span>
      <time class="wall-clock">{fmt.time(new Date(now), "minute")}</time>
    </footer>
  );
}
