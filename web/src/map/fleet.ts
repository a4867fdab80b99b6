/** The GPUs of the API in the form that the map draws: each GPU with its parts, grouped. Pure. */

/** As /api/v1/gpu-map sends it; only what the map needs. */
export interface MapData {
  readonly clusters: readonly string[];
  readonly nodes: { readonly name: readonly string[]; readonly cluster: readonly number[] };
  readonly models: readonly string[];
  readonly namespaces: readonly string[];
  readonly activities: readonly string[];
  readonly signatures: readonly string[];
  readonly verdicts: readonly string[];
  readonly workloads: {
    readonly cluster: readonly number[];
    readonly kind: readonly string[];
    readonly namespace: readonly number[];
    readonly name: readonly string[];
    readonly user: readonly string[];
    readonly verdict: readonly number[];
  };
  readonly gpus: {
    readonly node: readonly number[];
    readonly index: readonly string[];
    readonly model: readonly number[];
    readonly parts: readonly (readonly (readonly unknown[])[])[];
    readonly hidden_holders: readonly number[];
  };
}

export const GROUPINGS = ["node", "namespace", "model", "cluster"] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** What a part of a tile shows, from top to bottom; `other`: held by a namespace of another group. */
export const KINDS = ["active", "suspicious", "idle", "unknown", "other", "free"] as const;
export type Kind = (typeof KINDS)[number];

export interface Part {
  readonly kind: Kind;
  /** From the top of the tile, 0 to 1. */
  readonly from: number;
  readonly to: number;
  /** The row of `workloads`; -1: nobody, or somebody the viewer may not see. */
  readonly workload: number;
  readonly signature: string;
  readonly fraction: number;
}

export interface Group {
  readonly label: string;
  /** GPUs by their row in `gpus`. */
  readonly members: readonly number[];
  /** Draw only the parts of this namespace; -1: all parts. */
  readonly namespace: number;
}

/** Less of a GPU is an error of rounding. */
const SMALLEST = 0.004;
/** Below this share of a GPU a part could not be seen or hit. */
const THINNEST = 0.12;

/** The parts of a GPU from top to bottom, adding up to the whole tile; what nobody holds is free. */
export function makeParts(data: MapData, gpu: number, namespace = -1): Part[] {
  const holders = (data.gpus.parts[gpu] ?? []).map((row) => {
    const [fraction = 0, activity = 0, signature = 0, workload = -1] = row as readonly number[];
    const isSuspicious = data.verdicts[data.workloads.verdict[workload] ?? -1] === "suspicious";
    return { fraction, kind: kindOf(data.activities[activity], isSuspicious), signature: data.signatures[signature] ?? "", workload };
  });
  const used = holders.reduce((sum, one) => sum + one.fraction, 0);
  const hidden = data.gpus.hidden_holders[gpu] ? Math.max(0, 1 - used) : 0;
  const shown = holders
    .filter((one) => namespace < 0 || data.workloads.namespace[one.workload] === namespace)
    .sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
  const others = used - shown.reduce((sum, one) => sum + one.fraction, 0);
  const slices: Omit<Part, "from" | "to">[] = [...shown];
  if (others > SMALLEST) slices.push({ kind: "other", fraction: others, signature: "", workload: -1 });
  if (1 - used > SMALLEST) slices.push({ kind: hidden ? "unknown" : "free", fraction: 1 - used, signature: "", workload: -1 });
  return stack(slices);
}

/** What is active of a suspicious workload is suspicious. */
function kindOf(activity: string | undefined, isSuspicious: boolean): Kind {
  if (activity === "active" && isSuspicious) return "suspicious";
  return activity === "active" || activity === "idle" ? activity : "unknown";
}

/** More than one holder of the whole GPU (time slicing) shares the tile in proportion. */
function stack(slices: readonly Omit<Part, "from" | "to">[]): Part[] {
  const weights = slices.map((one) => Math.max(THINNEST, one.fraction));
  const total = weights.reduce((sum, each) => sum + each, 0);
  let at = 0;
  return slices.map((one, index) => {
    const from = at;
    at += weights[index]! / total;
    return { ...one, from, to: index === slices.length - 1 ? 1 : at };
  });
}

export function groupGpus(data: MapData, grouping: Grouping, freeLabel: string): Group[] {
  if (grouping === "namespace") return groupByNamespace(data, freeLabel);
  const keys: Record<Exclude<Grouping, "namespace">, (gpu: number) => number> = {
    node: (gpu) => data.gpus.node[gpu]!,
    model: (gpu) => data.gpus.model[gpu]!,
    cluster: (gpu) => data.nodes.cluster[data.gpus.node[gpu]!]!,
  };
  const isNamed = hasSeveralClusters(data);
  const names = { node: data.nodes.name.map((_, node) => nodeName(data, node, isNamed)), model: data.models, cluster: data.clusters }[grouping];
  const members = collect(data, keys[grouping]);
  const show = (name: string) => (grouping === "model" ? name.replace(/^(NVIDIA|Tesla|GeForce|\s)+/, "") : name);
  const groups = [...members].map(([key, gpus]) => ({ label: show(names[key] ?? ""), members: gpus, namespace: -1 }));
  return grouping === "node" ? groups : groups.sort(bySize);
}

/** With its cluster where several are shown. */
export function nodeName(data: MapData, node: number, isNamed = hasSeveralClusters(data)): string {
  const name = data.nodes.name[node] ?? "";
  const cluster = data.clusters[data.nodes.cluster[node]!];
  return cluster && isNamed ? `${cluster}/${name}` : name;
}

function hasSeveralClusters({ nodes }: MapData): boolean {
  return nodes.cluster.some((each) => each !== nodes.cluster[0]);
}

function collect(data: MapData, keyOf: (gpu: number) => number): Map<number, number[]> {
  const members = new Map<number, number[]>();
  for (let gpu = 0; gpu < data.gpus.node.length; gpu++) push(members, keyOf(gpu), gpu);
  return members;
}

function push(members: Map<number, number[]>, key: number, gpu: number): void {
  const list = members.get(key);
  if (list) list.push(gpu);
  else members.set(key, [gpu]);
}

/** A shared GPU stands in the group of each namespace that holds a part of it; free GPUs come last. Namespaces of equal
 * names in several clusters are several groups. */
function groupByNamespace(data: MapData, freeLabel: string): Group[] {
  const count = data.namespaces.length;
  const members = new Map<number, number[]>(); // by cluster and namespace
  const free: number[] = [];
  for (let gpu = 0; gpu < data.gpus.node.length; gpu++) {
    const holders = data.gpus.parts[gpu] ?? [];
    const namespaces = new Set(holders.map((part) => data.workloads.namespace[part[3] as number]!));
    const cluster = data.nodes.cluster[data.gpus.node[gpu]!]!;
    for (const namespace of namespaces) push(members, cluster * count + namespace, gpu);
    if (!namespaces.size) free.push(gpu);
  }
  const isNamed = hasSeveralClusters(data);
  const groups: Group[] = [...members].map(([key, gpus]) => {
    const [cluster, namespace] = [data.clusters[Math.floor(key / count)], key % count];
    const name = data.namespaces[namespace] ?? "";
    return { label: isNamed && cluster ? `${cluster} / ${name}` : name, members: gpus, namespace };
  });
  groups.sort(bySize);
  if (free.length) groups.push({ label: freeLabel, members: free, namespace: -1 });
  return groups;
}

const bySize = (a: Group, b: Group): number => b.members.length - a.members.length || a.label.localeCompare(b.label);
