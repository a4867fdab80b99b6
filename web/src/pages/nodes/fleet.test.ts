import { expect, test } from "vitest";
import { ALL_SLICES, findNodes, layOutInstances, type MigInstance, type NodeRow, sortNodes, sumModels } from "./fleet";

const row = (node: string, model: string, gpus: number | null, free: number | null, idle: number): NodeRow =>
  ({ cluster: "", node, models: [model], gpus, free_gpus: free, allocated_gpus: 4, active_gpus: 1, idle_gpus: idle, unknown_gpus: 0, shares: ["mig"], workloads: 2, idle_cost_micros_per_hour: null }) as NodeRow;

const ROWS = [row("h100-10", "H100", 8, 0, 3), row("h100-9", "H100", 8, 2, 1), row("l4-1", "L4", null, null, 0)];
const names = (rows: readonly NodeRow[]) => rows.map((each) => each.node).join(" ");

test("names are sorted as people count, numbers fall, and what is unknown is last", () => {
  expect(names(sortNodes(ROWS, "node", false))).toBe("h100-9 h100-10 l4-1");
  expect(names(sortNodes(ROWS, "idle", false))).toBe("h100-10 h100-9 l4-1");
  expect(names(sortNodes(ROWS, "free", false))).toBe("h100-9 h100-10 l4-1");
  expect(names(sortNodes(ROWS, "free", true))).toBe("h100-10 h100-9 l4-1");
});

test("nodes are found by the words of their names, models and ways of sharing", () => {
  expect(names(findNodes(ROWS, "H100 mig", "all"))).toBe("h100-10 h100-9");
  expect(names(findNodes(ROWS, "", "free"))).toBe("h100-9");
  expect(names(findNodes(ROWS, "", "idle"))).toBe("h100-10 h100-9");
});

test("models with free GPUs are first, and a number that a node does not know stays unknown", () => {
  expect(sumModels(ROWS)).toEqual([
    { model: "H100", nodes: 2, gpus: 16, free: 2, idle: 4 },
    { model: "L4", nodes: 1, gpus: null, free: null, idle: 0 },
  ]);
});

const instance = (name: string, slices: number | null) => ({ instance: name, compute_slices: slices }) as MigInstance;

test("instances fill the seven slices of a GPU, the largest first, and the rest is free", () => {
  const slots = layOutInstances([instance("1", 1), instance("2", 3), instance("3", 2)]);
  expect(slots.map((slot) => [slot.begin, slot.slices, slot.instance?.instance ?? null])).toEqual([[0, 3, "2"], [3, 2, "3"], [5, 1, "1"], [6, 1, null]]);
  const full = layOutInstances([instance("1", 7)]);
  expect(full).toHaveLength(1);
  const even = layOutInstances([instance("1", null), instance("2", null)]);
  expect(even.reduce((sum, slot) => sum + slot.slices, 0)).toBe(ALL_SLICES);
});
