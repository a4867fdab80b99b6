/** The map of all GPUs: a canvas that draws what is in view, with a ring and a tooltip on top of it. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { wordOf } from "../components/badge";
import { workloadLink, type WorkloadKey } from "../components/workload-link";
import { defineTexts, fmt, t } from "../i18n";
import { navigate } from "../router";
import { paletteVersion } from "../state/theme";
import { readColours } from "../styles/palette";
import { type Grouping, groupGpus, type MapData, nodeName, type Part } from "./fleet";
import { findCell, findTile, fitLayout, moveTile, type Place, tileBox } from "./layout";
import { PALETTE_NAMES, Painter, PartsCache, type Scene } from "./painter";
import "./gpu-map.css";

const texts = defineTexts(
  {
    label: "Map of {n} GPUs. Arrow keys move, Enter opens the holder.",
    "gpu-name": "{node} · GPU {index}",
    "free-gpu": "{node} · free GPU",
    none: "No GPU chosen",
    hidden: "held in namespaces that you may not see",
    free: "free",
    "free-part": "{share} free",
    "other-part": "{share} held by other namespaces",
  },
  {
    label: "{n} 张 GPU 的分布图。方向键移动，回车键打开占用者。",
    "gpu-name": "{node} · GPU {index}",
    "free-gpu": "{node} · 未分配的 GPU",
    none: "未选择 GPU",
    hidden: "由您无权查看的命名空间占用",
    free: "未分配",
    "free-part": "{share} 未分配",
    "other-part": "{share} 由其他命名空间占用",
  },
);

interface Props {
  readonly data: MapData;
  readonly grouping: Grouping;
  /** Higher than this it scrolls. */
  readonly maxHeight: number;
}

export function GpuMap({ data, grouping, maxHeight }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const painter = useRef<Painter | null>(null);
  const width = useWidth(scroller);
  const groups = useMemo(() => groupGpus(data, grouping, texts("free")), [data, grouping]);
  const shape = groups.map((group) => group.members.length).join();
  // The layout depends on the sizes of the groups only: a refresh keeps it, and so the place and the drawing.
  const layout = useMemo(() => fitLayout(groups, width, maxHeight), [shape, width, maxHeight]);
  const parts = useMemo(() => new PartsCache(data), [data]);
  const scene = useRef<Scene>({ data, groups, layout });
  scene.current = { data, groups, layout };
  const [place, setPlace] = useState<Place | null>(null);
  const [byKeyboard, setByKeyboard] = useState(false);
  const height = Math.min(layout.height, maxHeight);
  const palette = paletteVersion.value;

  useLayoutEffect(() => {
    if (!width || !canvas.current) return;
    painter.current ??= new Painter(canvas.current, getComputedStyle(document.documentElement).fontFamily);
    painter.current.prepare(width, height, devicePixelRatio || 1, readColours(PALETTE_NAMES));
    painter.current.draw(scene.current, parts, scroller.current!.scrollTop);
  }, [width, height, palette]);
  useLayoutEffect(() => {
    if (width) painter.current?.draw(scene.current, parts, scroller.current!.scrollTop);
  }, [data, layout, groups]);
  useEffect(() => onScrollFrame(scroller.current!, (top) => painter.current?.draw(scene.current, parts, top)), [parts]);
  useEffect(() => setPlace(null), [grouping]);

  const gpu = place ? groups[place.group]?.members[place.position] : undefined;
  const shown = place && gpu !== undefined ? parts.get(gpu, groups[place.group]!.namespace) : undefined;
  const cell = place ? findCell(layout, place.group) : undefined;
  const box = place && shown && cell && place.position < cell.count ? tileBox(layout, cell, place.position) : undefined;

  const locate = (event: PointerEvent) => {
    const bounds = canvas.current!.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top + scroller.current!.scrollTop;
    return { found: findTile(layout, x, y), y };
  };
  const onMove = (event: PointerEvent) => {
    const { found } = locate(event);
    setByKeyboard(false);
    setPlace((before) => (found?.group === before?.group && found?.position === before?.position ? before : found && { group: found.group, position: found.position }));
  };
  const onClick = (event: MouseEvent) => {
    const { found, y } = locate(event as PointerEvent);
    if (!found) return;
    const tile = tileBox(layout, found.cell, found.position);
    const group = groups[found.group]!;
    openPart(data, parts.get(group.members[found.position]!, group.namespace), (y - tile.y) / tile.height);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter" && shown) return openPart(data, shown, 0);
    if (event.key === "Escape") return setPlace(null);
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = place ? moveTile(layout, place, event.key) : { group: 0, position: 0 };
    setByKeyboard(true);
    setPlace(next);
    reveal(scroller.current!, tileBox(layout, findCell(layout, next.group)!, next.position), layout.size.labelHeight);
  };

  return (
    <div class="map">
      <div
        ref={scroller}
        class="map-scroll"
        style={{ maxHeight: `${maxHeight}px` }}
        tabIndex={0}
        role="listbox"
        aria-label={texts("label", { n: data.gpus.node.length })}
        aria-activedescendant={gpu === undefined ? undefined : "map-current"}
        onKeyDown={onKey}
        onBlur={() => byKeyboard && setPlace(null)}
      >
        <div
          class={`map-space${shown?.some((part) => part.workload >= 0) ? " map-opens" : ""}`}
          style={{ height: `${layout.height}px` }}
          onPointerMove={onMove}
          onPointerLeave={() => !byKeyboard && setPlace(null)}
          onClick={onClick}
        >
          <canvas ref={canvas} aria-hidden="true" />
          {box && <i class="map-ring" style={{ left: `${box.x - 2}px`, top: `${box.y - 2}px`, width: `${box.width + 4}px`, height: `${box.height + 4}px` }} />}
          <span id="map-current" class="visually-hidden" role="option" aria-selected={gpu !== undefined}>
            {gpu === undefined ? texts("none") : describe(data, gpu, shown!)}
          </span>
        </div>
      </div>
      {box && gpu !== undefined && (
        <Tooltip data={data} gpu={gpu} parts={shown!} x={box.x} y={box.y - (scroller.current?.scrollTop ?? 0)} side={box.x > width * 0.55 ? "end" : "start"} width={width} />
      )}
    </div>
  );
}

function useWidth(element: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const node = element.current!;
    setWidth(node.clientWidth);
    const observer = new ResizeObserver(() => setWidth(node.clientWidth));
    observer.observe(node);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** At most one drawing per frame. */
function onScrollFrame(element: HTMLElement, draw: (top: number) => void): () => void {
  let frame = 0;
  const onScroll = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw(element.scrollTop);
    });
  };
  element.addEventListener("scroll", onScroll, { passive: true });
  return () => {
    cancelAnimationFrame(frame);
    element.removeEventListener("scroll", onScroll);
  };
}

function reveal(scroller: HTMLElement, box: { y: number; height: number }, margin: number): void {
  if (box.y - margin < scroller.scrollTop) scroller.scrollTop = box.y - margin;
  else if (box.y + box.height > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = box.y + box.height - scroller.clientHeight + 4;
}

function keyOf(data: MapData, workload: number): WorkloadKey {
  const { workloads } = data;
  return {
    cluster: data.clusters[workloads.cluster[workload]!] ?? "",
    kind: workloads.kind[workload]!,
    namespace: data.namespaces[workloads.namespace[workload]!] ?? "",
    name: workloads.name[workload]!,
  };
}

function openPart(data: MapData, parts: readonly Part[], at: number): void {
  const part = parts.find((each) => each.workload >= 0 && at < each.to) ?? parts.find((each) => each.workload >= 0);
  if (part) navigate(workloadLink(keyOf(data, part.workload)));
}

function nameOf(data: MapData, gpu: number): string {
  const node = nodeName(data, data.gpus.node[gpu]!);
  const index = data.gpus.index[gpu];
  return index ? texts("gpu-name", { node, index }) : texts("free-gpu", { node });
}

function describe(data: MapData, gpu: number, parts: readonly Part[]): string {
  const holders = parts.map((part) => {
    if (part.kind === "other") return texts("other-part", { share: fmt.percent(part.fraction, 0) });
    if (part.workload < 0) return t(part.kind === "free" ? "verdict.free" : "verdict.unknown");
    const key = keyOf(data, part.workload);
    return `${key.namespace}/${key.kind}/${key.name}, ${data.workloads.user[part.workload]}, ${wordOf("verdict", part.kind)}`;
  });
  return `${nameOf(data, gpu)}: ${holders.join("; ")}`;
}

interface TooltipProps {
  readonly data: MapData;
  readonly gpu: number;
  readonly parts: readonly Part[];
  readonly x: number;
  readonly y: number;
  readonly side: "start" | "end";
  readonly width: number;
}

function Tooltip({ data, gpu, parts, x, y, side, width }: TooltipProps) {
  const place = side === "start" ? { left: `${x + 22}px` } : { right: `${width - x + 8}px` };
  const cluster = data.clusters.length > 1 ? data.clusters[data.nodes.cluster[data.gpus.node[gpu]!]!] : "";
  return (
    <div class="map-tooltip" style={{ ...place, top: `${y - 6}px` }} aria-hidden="true">
      <div class="map-tooltip-head">
        <strong>{nameOf(data, gpu)}</strong>
        <span>{[data.models[data.gpus.model[gpu]!], cluster].filter(Boolean).join(" · ")}</span>
      </div>
      {parts.map((part, index) => (
        <TooltipPart key={index} data={data} part={part} isOnly={parts.length === 1} isHidden={!!data.gpus.hidden_holders[gpu]} />
      ))}
    </div>
  );
}

function TooltipPart({ data, part, isOnly, isHidden }: { data: MapData; part: Part; isOnly: boolean; isHidden: boolean }) {
  const share = fmt.percent(part.fraction, 0);
  if (part.workload < 0) {
    if (isOnly && part.kind === "free") return null;
    return (
      <div class="map-tooltip-part">
        <i class={`swatch fill-${part.kind}`} />
        <span>{part.kind === "unknown" && isHidden ? texts("hidden") : texts(part.kind === "other" ? "other-part" : "free-part", { share })}</span>
      </div>
    );
  }
  const key = keyOf(data, part.workload);
  const user = data.workloads.user[part.workload];
  const words = [user, part.fraction < 0.995 ? share : "", wordOf("verdict", part.kind), part.signature && part.signature !== part.kind ? wordOf("signature", part.signature) : ""];
  return (
    <div class="map-tooltip-part">
      <i class={`swatch fill-${part.kind}`} />
      <span>
        <span class="secondary">{key.namespace}/{key.kind}/</span>
        <b>{key.name}</b>
        <small>{words.filter(Boolean).join(" · ")}</small>
      </span>
    </div>
  );
}
