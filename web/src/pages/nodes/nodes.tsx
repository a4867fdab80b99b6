/** Every node with GPUs: what is free, what is idle; one of them in detail beside the list. */
import { useState } from "preact/hooks";
import { useResource } from "../../api/resources";
import { AmountLine, StackedBar } from "../../components/bar";
import { DataState } from "../../components/panel";
import { Segments } from "../../components/segments";
import { fmt } from "../../i18n";
import { changeQuery, formatRoute, route } from "../../router";
import { cluster } from "../../state/filters";
import { findNodes, keyOf, type NodeList, type NodeRow, type Only, SORT_KEYS, type SortKey, sortNodes } from "./fleet";
import { ModelPanel } from "./model-panel";
import { NodePanel } from "./node-panel";
import { shareName, texts } from "./texts";
import "../../styles/tables.css";
import "./nodes.css";

const ONLY: readonly Only[] = ["all", "free", "idle", "unknown"];
const PAGE_ROWS = 200;

export default function Nodes() {
  const nodes = useResource("/api/v1/nodes", { cluster: cluster.value });
  const { q = "", node } = route.value.query;
  const only = ONLY.find((each) => each === route.value.query["only"]) ?? "all";
  const chosen = node === undefined ? undefined : (nodes.data?.items.find((each) => keyOf(each) === node) ?? nodes.data?.items.find((each) => each.node === node));
  return (
    <div class="page nodes">
      <div class="nodes-head">
        <DataState resource={nodes} lines={2}>{(data) => <Headline data={data} />}</DataState>
      </div>
      <div class="nodes-grid">
        <section class="panel">
          <div class="nodes-tools">
            <input
              class="field"
              type="search"
              placeholder={texts("search")}
              aria-label={texts("search")}
              value={q}
              onInput={(event) => changeQuery({ q: event.currentTarget.value }, { replace: true })}
            />
            <Segments
              label={texts("only")}
              value={only}
              choices={ONLY.map((value) => ({ value, text: texts(`only-${value}`) }))}
              onChoose={(value) => changeQuery({ only: value === "all" ? "" : value }, { replace: true })}
            />
          </div>
          <DataState resource={nodes} lines={12} isEmpty={(data) => data.items.length === 0} empty={texts("empty")}>
            {(data) => <NodeTable data={data} rows={findNodes(data.items, q, only)} chosen={chosen && keyOf(chosen)} />}
          </DataState>
        </section>
        {chosen ? <NodePanel key={keyOf(chosen)} row={chosen} currency={nodes.data!.currency} /> : <ModelPanel nodes={nodes} />}
      </div>
    </div>
  );
}

function Headline({ data }: { data: NodeList }) {
  const sum = (read: (row: NodeRow) => number) => data.items.reduce((all, row) => all + read(row), 0);
  const isCounted = data.items.every((row) => row.gpus !== null);
  const total = fmt.gpus(isCounted ? sum((row) => row.gpus ?? 0) : sum((row) => row.allocated_gpus));
  const free = sum((row) => row.free_gpus ?? 0);
  const idle = sum((row) => row.idle_gpus);
  const cost = data.items.some((row) => row.idle_cost_micros_per_hour !== null) ? sum((row) => row.idle_cost_micros_per_hour ?? 0) : null;
  const shown = fmt.number(idle, idle < 10 ? 1 : 0);
  const models = new Set(data.items.flatMap((row) => row.models)).size;
  return (
    <div>
      <h1>
        {data.items.length === 0
          ? texts("headline-empty")
          : !isCounted
            ? texts("headline-uncounted", { total, nodes: data.items.length })
            : free > 0
              ? texts("headline-free", { free, n: free, total, nodes: data.items.filter((row) => row.free_gpus).length })
              : texts("headline-none-free", { total })}
      </h1>
      {data.items.length > 0 && (
        <p class="nodes-sub">
          {texts("sub", { nodes: data.items.length, models })}{" "}
          {idle >= 0.05 && (cost === null ? texts("sub-idle-hours", { idle: shown }) : texts("sub-idle", { idle: shown, cost: fmt.money(cost, data.currency) }))}
        </p>
      )}
    </div>
  );
}

function NodeTable({ data, rows, chosen }: { data: NodeList; rows: readonly NodeRow[]; chosen: string | undefined }) {
  const [limit, setLimit] = useState(PAGE_ROWS);
  const asked = (route.value.query["sort"] ?? "").replace(/^-/, "");
  const sort = SORT_KEYS.find((each) => each === asked) ?? "node";
  const isTurned = (route.value.query["sort"] ?? "").startsWith("-");
  const sorted = sortNodes(rows, sort, isTurned);
  const most = Math.max(...data.items.map((row) => row.idle_cost_micros_per_hour ?? 0), 1);
  const isPriced = data.items.some((row) => row.idle_cost_micros_per_hour !== null);
  if (rows.length === 0) return <p class="state state-empty">{texts("no-nodes")}</p>;
  const hidden = sorted.length - limit;
  return (
    <>
      <div class="table-scroll" tabIndex={0} role="region" aria-label={texts("nodes")}>
        <table class="rows nodes-table">
          <thead>
            <tr>
              <SortHead column="node" text={texts("node")} sort={sort} isTurned={isTurned} />
              <SortHead column="gpus" text={texts("gpus")} sort={sort} isTurned={isTurned} class="number" />
              <th class="nodes-use">{texts("use")}</th>
              <SortHead column="free" text={texts("free")} sort={sort} isTurned={isTurned} class="number" />
              <SortHead column="idle" text={texts("idle")} sort={sort} isTurned={isTurned} class="number" />
              <SortHead column="workloads" text={texts("workloads")} sort={sort} isTurned={isTurned} class="number nodes-workloads" />
              {isPriced && <SortHead column="cost" text={texts("cost", { currency: data.currency })} sort={sort} isTurned={isTurned} class="number nodes-cost" />}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, limit).map((row) => <NodeLine key={keyOf(row)} row={row} isChosen={keyOf(row) === chosen} most={isPriced ? most : null} />)}
          </tbody>
        </table>
      </div>
      {hidden > 0 && <button type="button" class="button nodes-more" onClick={() => setLimit(limit + PAGE_ROWS)}>{texts("more", { n: Math.min(hidden, PAGE_ROWS) })}</button>}
    </>
  );
}

interface HeadProps {
  readonly column: SortKey;
  readonly text: string;
  readonly sort: SortKey;
  readonly isTurned: boolean;
  readonly class?: string;
}

function SortHead({ column, text, sort, isTurned, class: className = "" }: HeadProps) {
  const isSorted = column === sort;
  const isRising = (column === "node") !== isTurned;
  return (
    <th class={className} aria-sort={isSorted ? (isRising ? "ascending" : "descending") : undefined}>
      <button type="button" class="sort" title={texts("sort-by", { column: text })} onClick={() => changeQuery({ sort: isSorted && !isTurned ? `-${column}` : column === "node" ? "" : column })}>
        {text}
        {isSorted && <span aria-hidden="true">{isRising ? " ↑" : " ↓"}</span>}
      </button>
    </th>
  );
}

/** `most`: the highest cost of all nodes; null: there are no prices. */
function NodeLine({ row, isChosen, most }: { row: NodeRow; isChosen: boolean; most: number | null }) {
  const { page, path, query } = route.value;
  const open = () => changeQuery({ node: isChosen ? "" : keyOf(row) });
  return (
    <tr class={isChosen ? "row chosen" : "row"} onClick={open}>
      <td class="nodes-name">
        <a
          class="plain-link"
          href={formatRoute(page, path, { ...query, node: keyOf(row) })}
          aria-current={isChosen ? "true" : undefined}
          onClick={(event) => {
            event.preventDefault();
            event.stopPropagation();
            open();
          }}
        >
          {keyOf(row)}
        </a>
        <small>{[row.models.map(fmt.model).join(", "), row.shares.filter((each) => each !== "exclusive").map(shareName).join(", ")].filter(Boolean).join(" · ")}</small>
      </td>
      <td class="number">{row.gpus === null ? fmt.gpus(row.allocated_gpus) : fmt.gpus(row.gpus)}</td>
      <td class="nodes-use"><UseBar row={row} /></td>
      <td class="number">{row.free_gpus === null ? "–" : row.free_gpus > 0 ? <strong>{fmt.gpus(row.free_gpus)}</strong> : <span class="secondary">0</span>}</td>
      <td class="number">{row.idle_gpus > 0 ? fmt.gpus(row.idle_gpus) : <span class="secondary">0</span>}</td>
      <td class="number nodes-workloads">{fmt.number(row.workloads)}</td>
      {most !== null && (
        <td class="number nodes-cost">
          {row.idle_cost_micros_per_hour ? (
            <>
              <strong>{fmt.amount(row.idle_cost_micros_per_hour)}</strong>
              <AmountLine ratio={row.idle_cost_micros_per_hour / most} />
            </>
          ) : (
            <span class="secondary">{row.idle_cost_micros_per_hour === null ? "–" : "0"}</span>
          )}
        </td>
      )}
    </tr>
  );
}

/** The GPUs of a node as one bar that adds up to all of them. */
function UseBar({ row }: { row: NodeRow }) {
  const free = Math.max(0, (row.gpus ?? row.allocated_gpus) - row.allocated_gpus);
  const words = { active: fmt.gpus(row.active_gpus), idle: fmt.gpus(row.idle_gpus), unknown: fmt.gpus(row.unknown_gpus), free: fmt.gpus(free) };
  return (
    <StackedBar
      label={texts("use-label", words)}
      parts={[
        { kind: "active", value: row.active_gpus },
        { kind: "idle", value: row.idle_gpus },
        { kind: "unknown", value: row.unknown_gpus },
        { kind: "free", value: free },
      ]}
    />
  );
}
