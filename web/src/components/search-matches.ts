/** What a search finds: workloads, people, nodes and namespaces whose names contain every word. Pure. */
import type { Row } from "../pages/workloads/rows";
import type { WorkloadKey } from "./workload-link";

export type Match =
  | { readonly type: "workload"; readonly key: WorkloadKey; readonly note: string }
  | { readonly type: "user" | "node" | "namespace"; readonly name: string; readonly count: number };

const MOST_WORKLOADS = 6;
const MOST_NAMES = 3;

export function findMatches(rows: readonly Row[], text: string): Match[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const has = (name: string) => words.every((word) => name.toLowerCase().includes(word));
  const names = (["namespace", "user", "node"] as const).flatMap((type) => countNames(rows, type, has));
  const found = rows.filter((row) => words.every((word) => row.haystack.includes(word)));
  // Those whose own name has the words come before those found by their node or user.
  const ranked = [...found.filter((row) => has(`${row.namespace}/${row.kind}/${row.name}`)), ...found].slice(0, 2 * MOST_WORKLOADS);
  const workloads = [...new Set(ranked)].slice(0, MOST_WORKLOADS);
  return [...names, ...workloads.map((row): Match => ({ type: "workload", key: row, note: row.users.join(", ") }))];
}

const READ = {
  namespace: (row: Row): readonly string[] => [row.namespace],
  user: (row: Row): readonly string[] => row.users,
  node: (row: Row): readonly string[] => row.nodes,
};

function countNames(rows: readonly Row[], type: "user" | "node" | "namespace", has: (name: string) => boolean): Match[] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const name of READ[type](row)) if (name && has(name)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts]
    .sort((a, b) => a[0].length - b[0].length || b[1] - a[1])
    .slice(0, MOST_NAMES)
    .map(([name, count]) => ({ type, name, count }));
}
