/** Nodes as rows: search, order, and what is free by model. Pure. */
import type { Answer } from "../../api/client";

export type NodeList = Answer<"/api/v1/nodes">;
export type NodeRow = NodeList["items"][number];
export type NodeDetail = Answer<"/api/v1/nodes/{node}">;
export type NodeGpu = NodeDetail["gpus"][number];
export type MigInstance = NodeGpu["instances"][number];

export type SortKey = "node" | "gpus" | "free" | "idle" | "unknown" | "workloads" | "cost";
export const SORT_KEYS: readonly SortKey[] = ["node", "gpus", "free", "idle", "unknown", "workloads", "cost"];

export const keyOf = (node: { readonly cluster: string; readonly node: string }): string => (node.cluster ? `${node.cluster}/${node.node}` : node.node);

function sortValue(row: NodeRow, key: SortKey): number | null {
  if (key === "gpus") return row.gpus ?? row.allocated_gpus;
  if (key === "free") return row.free_gpus;
  if (key === "idle") return row.idle_gpus;
  if (key === "unknown") return row.unknown_gpus;
  if (key === "workloads") return row.workloads;
  return row.idle_cost_micros_per_hour;
}

const collator = new Intl.Collator("en", { numeric: true });

/** Names rise, numbers fall, unless turned around; what is unknown is last. */
export function sortNodes(rows: readonly NodeRow[], key: SortKey, isTurned: boolean): readonly NodeRow[] {
  const sign = isTurned ? -1 : 1;
  return [...rows].sort((one, other) => {
    const byName = collator.compare(keyOf(one), keyOf(other));
    if (key === "node") return sign * byName;
    const [a, b] = [sortValue(one, key), sortValue(other, key)];
    if (a === null || b === null) return Number(a === null) - Number(b === null) || byName;
    return sign * (b - a) || byName;
  });
}

export type Only = "all" | "free" | "idle" | "unknown";

/** `words` must all be in the names of node, cluster, models or ways of sharing. */
export function findNodes(rows: readonly NodeRow[], words: string, only: Only): readonly NodeRow[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    if (only === "free" && !row.free_gpus) return false;
    if (only === "idle" && row.idle_gpus <= 0) return false;
    if (only === "unknown" && row.unknown_gpus <= 0) return false;
    const text = `${row.cluster} ${row.node} ${row.models.join(" ")} ${row.shares.join(" ")}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

export interface ModelSum {
  readonly model: string;
  readonly nodes: number;
  readonly gpus: number | null;
  readonly free: number | null;
  readonly idle: number;
}

/** GPUs by model; a node with several models counts under all their names together. */
export function sumModels(rows: readonly NodeRow[]): readonly ModelSum[] {
  const sums = new Map<string, ModelSum>();
  for (const row of rows) {
    const model = row.models.join(" + ");
    const before = sums.get(model) ?? { model, nodes: 0, gpus: 0, free: 0, idle: 0 };
    sums.set(model, {
      model,
      nodes: before.nodes + 1,
      gpus: before.gpus === null || row.gpus === null ? null : before.gpus + row.gpus,
      free: before.free === null || row.free_gpus === null ? null : before.free + row.free_gpus,
      idle: before.idle + row.idle_gpus,
    });
  }
  return [...sums.values()].sort((one, other) => (other.free ?? 0) - (one.free ?? 0) || other.idle - one.idle || one.model.localeCompare(other.model));
}

export const ALL_SLICES = 7;

export interface Slot {
  readonly begin: number;
  readonly slices: number;
  /** null: not divided, and so free. */
  readonly instance: MigInstance | null;
}

/** Instances side by side on the seven compute slices of a GPU, the largest first, as NVIDIA places them; the rest is free.
 * Without known slices the room is divided evenly. */
export function layOutInstances(instances: readonly MigInstance[]): readonly Slot[] {
  const known = instances.reduce((sum, each) => sum + (each.compute_slices ?? 0), 0);
  const unknown = instances.filter((each) => each.compute_slices === null).length;
  const share = unknown ? Math.max(0.5, (ALL_SLICES - known) / unknown) : 0;
  const ordered = [...instances].sort((one, other) => (other.compute_slices ?? 0) - (one.compute_slices ?? 0) || collator.compare(one.instance, other.instance));
  const slots: Slot[] = [];
  let begin = 0;
  for (const instance of ordered) {
    const slices = instance.compute_slices ?? share;
    slots.push({ begin, slices, instance });
    begin += slices;
  }
  const rest = ALL_SLICES - begin;
  if (rest > 0.01) slots.push({ begin, slices: rest, instance: null });
  return slots;
}
