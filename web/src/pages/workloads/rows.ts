/** The columns of the API as rows. Pure. */
import type { Answer } from "../../api/client";

export type TableData = Answer<"/api/v1/workloads/table">;

export interface Row {
  /** Stable over refreshes: cluster/namespace/kind/name. */
  readonly id: string;
  readonly cluster: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly users: readonly string[];
  readonly models: readonly string[];
  readonly nodes: readonly string[];
  readonly nodesTotal: number;
  readonly activity: string;
  readonly verdict: string;
  readonly state: string;
  readonly signature: string;
  readonly proof: string;
  readonly score: number | null;
  readonly gpus: number;
  readonly idleGpus: number;
  readonly unknownGpus: number;
  readonly allocations: number;
  /** Unix seconds; null: it is not idle as a whole. */
  readonly idleSince: number | null;
  readonly costPerHour: number | null;
  readonly idleCostPerHour: number | null;
  readonly costSpell: number | null;
  readonly costWeek: number | null;
  readonly snoozedUntil: number | null;
  /** What a word without a field is looked for in. */
  readonly haystack: string;
}

export function rowId(key: { cluster: string; kind: string; namespace: string; name: string }): string {
  return `${key.cluster}/${key.namespace}/${key.kind}/${key.name}`;
}

export function makeRows({ names, columns, total }: TableData): Row[] {
  const look = (list: readonly string[], codes: readonly number[]) => codes.map((code) => list[code] ?? "");
  return Array.from({ length: total }, (_, at) => {
    const cluster = names.cluster[columns.cluster[at]!] ?? "";
    const kind = names.kind[columns.kind[at]!] ?? "";
    const namespace = names.namespace[columns.namespace[at]!] ?? "";
    const name = columns.name[at]!;
    const users = look(names.users, columns.users[at]!);
    const models = look(names.models, columns.models[at]!);
    const nodes = look(names.nodes, columns.nodes[at]!);
    return {
      id: rowId({ cluster, kind, namespace, name }),
      cluster, kind, namespace, name, users, models, nodes,
      nodesTotal: columns.nodes_total[at]!,
      activity: names.activity[columns.activity[at]!] ?? "",
      verdict: names.verdict[columns.verdict[at]!] ?? "",
      state: names.state[columns.state[at]!] ?? "",
      signature: names.signature[columns.signature[at]!] ?? "",
      proof: names.proof[columns.proof[at]!] ?? "",
      score: columns.score[at] ?? null,
      gpus: columns.gpus[at]!,
      idleGpus: columns.idle_gpus[at]!,
      unknownGpus: columns.unknown_gpus[at]!,
      allocations: columns.allocations[at]!,
      idleSince: columns.idle_since[at] ?? null,
      costPerHour: columns.cost_micros_per_hour[at] ?? null,
      idleCostPerHour: columns.idle_cost_micros_per_hour[at] ?? null,
      costSpell: columns.idle_cost_micros[at] ?? null,
      costWeek: columns.idle_cost_micros_7d[at] ?? null,
      snoozedUntil: columns.snoozed_until[at] ?? null,
      haystack: [namespace, kind, name].join("/").concat(" ", users.join(" "), " ", models.join(" "), " ", nodes.join(" "), " ", cluster).toLowerCase(),
    };
  });
}
