/** One node: each GPU with what it measures, how it is divided, who is on it, and what is wrong with it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useResource } from "../../api/resources";
import { Badge, SignatureBadge } from "../../components/badge";
import { DataState, PanelHead } from "../../components/panel";
import { Since } from "../../components/time";
import { WorkloadLink } from "../../components/workload-link";
import { fmt, language } from "../../i18n";
import { changeQuery } from "../../router";
import { keyOf, type NodeDetail, type NodeGpu, type NodeRow } from "./fleet";
import { MigLayout } from "./mig-layout";
import { shareName, texts } from "./texts";

const CAREFUL_CELSIUS = 85;

export function NodePanel({ row, currency }: { row: NodeRow; currency: string }) {
  const detail = useResource("/api/v1/nodes/{node}", { node: row.node, cluster: row.cluster, language: language.value });
  const panel = useRef<HTMLElement>(null);
  useEffect(() => {
    if (matchMedia("(max-width: 1240px)").matches) panel.current?.scrollIntoView({ block: "start" });
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && !event.defaultPrevented && changeQuery({ node: "" });
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <section class="panel nodes-detail" ref={panel}>
      <PanelHead
        title={<span class="nodes-title">{keyOf(row)}</span>}
        aside={<button type="button" class="button button-quiet" onClick={() => changeQuery({ node: "" })}>{texts("close")}</button>}
      />
      <dl class="nodes-facts">
        <Fact name={texts("fact-active")}>{fmt.gpus(row.active_gpus)}</Fact>
        <Fact name={texts("fact-idle")}>{fmt.gpus(row.idle_gpus)}</Fact>
        {row.unknown_gpus > 0 && <Fact name={texts("fact-unknown")}>{fmt.gpus(row.unknown_gpus)}</Fact>}
        <Fact name={texts("fact-free")}>{row.free_gpus === null ? "–" : fmt.gpus(row.free_gpus)}</Fact>
        {row.idle_cost_micros_per_hour !== null && <Fact name={texts("fact-cost")}>{texts("per-hour", { money: fmt.money(row.idle_cost_micros_per_hour, currency) })}</Fact>}
      </dl>
      <DataState resource={detail} lines={10}>{(data) => <GpuList data={data} />}</DataState>
    </section>
  );
}

function GpuList({ data }: { data: NodeDetail }) {
  return (
    <>
      {data.readings_error && <p class="state-stale" role="status">{texts("readings-error", { reason: data.readings_error })}</p>}
      <ul class="gpu-list">
        {data.gpus.map((gpu, index) => <Gpu key={gpu.uuid || index} gpu={gpu} />)}
      </ul>
      {data.uncounted_free_gpus > 0 && <p class="state">{texts("uncounted", { n: data.uncounted_free_gpus })}</p>}
    </>
  );
}

function Gpu({ gpu }: { gpu: NodeGpu }) {
  return (
    <li class="gpu">
      <header class="gpu-head">
        <h3>{gpu.index === "" ? texts("free-gpu") : texts("gpu-name", { index: gpu.index })}</h3>
        <span class="secondary gpu-model" title={gpu.uuid}>{gpu.model}</span>
        <span class="gpu-badges">
          {gpu.is_up === false && <Badge tone="fault">{texts("lost")}</Badge>}
          {gpu.is_free ? <Badge tone="plain">{texts("is-free")}</Badge> : gpu.share && gpu.share !== "exclusive" && <Badge tone="active">{shareName(gpu.share)}</Badge>}
        </span>
      </header>
      <Readings gpu={gpu} />
      <Errors gpu={gpu} />
      {gpu.instances.length > 0 && <MigLayout gpu={gpu} />}
      <Holders gpu={gpu} />
    </li>
  );
}

/** What is not reported is left out, never zero. */
function Readings({ gpu }: { gpu: NodeGpu }) {
  return (
    <dl class="readings">
      {gpu.utilization_ratio !== null && <Reading name={texts("utilization")} ratio={gpu.utilization_ratio}>{fmt.percent(gpu.utilization_ratio)}</Reading>}
      {gpu.memory_used_bytes !== null && (
        <Reading name={texts("memory")} ratio={gpu.memory_total_bytes ? gpu.memory_used_bytes / gpu.memory_total_bytes : null}>
          {fmt.bytes(gpu.memory_used_bytes)} {gpu.memory_total_bytes !== null && <small>{texts("of", { limit: fmt.bytes(gpu.memory_total_bytes) })}</small>}
        </Reading>
      )}
      {gpu.power_watts !== null && (
        <Reading name={texts("power")} ratio={gpu.power_limit_watts ? gpu.power_watts / gpu.power_limit_watts : null}>
          {fmt.number(gpu.power_watts)}&nbsp;W {gpu.power_limit_watts !== null && <small>{texts("of", { limit: `${fmt.number(gpu.power_limit_watts)}\u00a0W` })}</small>}
        </Reading>
      )}
      {gpu.temperature_celsius !== null && (
        <Reading name={texts("temperature")} ratio={gpu.temperature_celsius / 100} isFault={gpu.temperature_celsius >= CAREFUL_CELSIUS}>{fmt.number(gpu.temperature_celsius)}&nbsp;°C</Reading>
      )}
      {gpu.sm_clock_hertz !== null && (
        <Reading name={texts(gpu.memory_clock_hertz === null ? "sm-clock" : "clocks")}>
          {fmt.number(gpu.sm_clock_hertz / 1e6)} {gpu.memory_clock_hertz !== null && <small>/ {fmt.number(gpu.memory_clock_hertz / 1e6)}</small>}
          <small> MHz</small>
        </Reading>
      )}
    </dl>
  );
}

function Reading({ name, ratio = null, isFault = false, children }: { name: string; ratio?: number | null; isFault?: boolean; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {children}
        {ratio !== null && (
          <span class="meter" aria-hidden="true">
            <i class={isFault ? "meter-fault" : ""} style={{ width: `${Math.max(0, Math.min(100, ratio * 100))}%` }} />
          </span>
        )}
      </dd>
    </div>
  );
}

function Errors({ gpu }: { gpu: NodeGpu }) {
  const limited = Object.entries(gpu.clock_events).filter(([, count]) => count > 0);
  if (gpu.errors.length === 0 && limited.length === 0) return null;
  return (
    <ul class="gpu-errors">
      {gpu.errors.map((error) => (
        <li key={error.code} class={`gpu-error-${error.level}`}>
          <strong>{error.code}</strong>
          {error.count !== null && error.count > 1 && <span class="secondary"> {texts("times", { n: error.count })}</span>}
          <span>{error.text}</span>
        </li>
      ))}
      {limited.length > 0 && <li><strong>{texts("clock-events")}</strong><span>{limited.map(([reason, count]) => `${reason}: ${fmt.number(count)}`).join(", ")}</span></li>}
    </ul>
  );
}

function Holders({ gpu }: { gpu: NodeGpu }) {
  if (gpu.holders.length === 0 && gpu.hidden_holders === 0) return null;
  return (
    <ul class="holders" aria-label={texts("holders")}>
      {gpu.holders.map((holder) => (
        <li key={`${holder.pod}/${holder.container}/${holder.instance}`}>
          <i class={`swatch fill-${holder.verdict}`} aria-hidden="true" />
          <span class="holder-name">
            <WorkloadLink of={holder.workload} />
            <small>
              {[holder.user, holder.share === "exclusive" ? "" : `${fmt.percent(holder.gpu_fraction)}`, holder.memory_used_bytes === null ? "" : fmt.bytes(holder.memory_used_bytes)].filter(Boolean).join(" · ")}
              {holder.idle_since && <> · {texts.rich("since", { age: <Since at={holder.idle_since} /> })}</>}
            </small>
          </span>
          <SignatureBadge signature={holder.signature} />
        </li>
      ))}
      {gpu.hidden_holders > 0 && <li class="secondary">{texts("hidden", { n: gpu.hidden_holders })}</li>}
    </ul>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
