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
import { cluster, days } from "../../state/filters";
import { theme } from "../../state/theme";
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
  const hasCosts = overview.data?.top.some((each) => each.idle_cost_micros !== null) ?? true;
  return (
    <section class="wall-top">
      <header>
        <h2>{texts(hasCosts ? "top" : "top-unpriced")}</h2>
        <span class="secondary">{overview.data && unitOf(overview.data, hasCosts)}</span>
      </header>
      <DataState resource={overview} lines={10} isEmpty={(data) => data.top.length === 0} empty={texts("top-empty")}>
        {(data) => <TopList items={data.top} unit={unitOf(data, hasCosts)} />}
      </DataState>
    </section>
  );
}

function unitOf(data: Overview, hasCosts: boolean): string {
  return hasCosts ? texts("days-cost", { currency: data.currency, days: data.waste.days }) : texts("hours", { days: data.waste.days });
}

function TopList({ items, unit }: { items: readonly Idle[]; unit: string }) {
  const amountOf = (item: Idle) => item.idle_cost_micros ?? item.idle_gpu_hours ?? 0;
  const most = Math.max(...items.map(amountOf), 1e-9);
  const [list, { height }] = useSize<HTMLOListElement>();
  const fits = Math.max(3, Math.floor(height / (LEAST_ROW_EM * (list.current ? Number.parseFloat(getComputedStyle(list.current).fontSize) : 16))));
  return (
    <ol class="wall-list" ref={list} aria-label={unit}>
      {items.slice(0, fits).map((item) => (
        <li key={`${item.cluster}/${item.namespace}/${item.kind}/${item.name}`}>
          <div class="wall-name">
            <WorkloadName of={item} short />
            <small>{[item.users[0], ...item.models.slice(0, 1).map((model) => texts("gpu-count", { gpus: fmt.gpus(item.gpus), model: fmt.model(model) }))].filter(Boolean).join(" · ")}</small>
          </div>
          <SignatureBadge signature={item.signature} />
          <span class="wall-since">{item.idle_since ? <Since at={item.idle_since} /> : texts("partly")}</span>
          <span class="wall-cost">
            <strong>{item.idle_cost_micros === null ? fmt.number(item.idle_gpu_hours ?? 0) : fmt.amount(item.idle_cost_micros)}</strong>
            <AmountLine ratio={amountOf(item) / most} />
          </span>
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
