import { expect, test } from "vitest";
import { idleRatio, idleTrend, joinRows, type Report, type Row, sortRows, totalCost } from "./groups";

const amounts = (idle: number, cost: number | null, score: number | null = 50) =>
  ({
    allocated_gpu_ms: 100, idle_gpu_ms: idle, active_gpu_ms: 100 - idle, unknown_gpu_ms: 0, mean_score: score,
    active_cost_micros: cost, idle_cost_micros: cost, unknown_cost_micros: cost === null ? null : 0,
  }) as Report["total"];

const row = (name: string, idle: number, cost: number | null, score?: number | null): Row =>
  ({ key: name, group: { name, amounts: amounts(idle, cost, score), idle_change_ratio: null }, detail: undefined }) as unknown as Row;

test("rows are sorted in both directions, and what is unknown is last in both", () => {
  const rows = [row("b", 10, 5), row("a", 30, 1, null), row("c", 20, 9, 70)];
  const names = (key: Parameters<typeof sortRows>[1], up: boolean) => sortRows(rows, key, up).map((each) => each.key).join("");
  expect([names("name", true), names("name", false)]).toEqual(["abc", "cba"]);
  expect([names("idle", true), names("idle-cost", false)]).toEqual(["bca", "cba"]);
  expect([names("score", true), names("score", false)]).toEqual(["bca", "cba"]);
});

test("a cost is unknown where a part of it is", () => {
  expect(totalCost(amounts(10, null))).toBeNull();
  expect(totalCost(amounts(10, 4))).toBe(8);
  expect(idleRatio({ ...amounts(0, 0), allocated_gpu_ms: 0 })).toBeNull();
});

test("a group is joined with its time by name and cluster", () => {
  const report = { groups: [{ name: "vision", cluster: "east" }, { name: "vision", cluster: "west" }] } as unknown as Report;
  const details = { groups: [{ name: "vision", cluster: "west", idle_gpu_ms: [1] }] } as never;
  expect(joinRows(report, details).map((each) => each.detail?.idle_gpu_ms.length)).toEqual([undefined, 1]);
});

test("a trend leaves out the first and last step where they are recorded only in part", () => {
  const details = { step_ms: 10, at_ms: [0, 10, 20, 30] } as never;
  const one = { detail: { idle_gpu_ms: [1, 2, 3, 4] } } as unknown as Row;
  expect(idleTrend(one, { range: { first_ms: 5, last_ms: 35 } } as Report, details)).toEqual([2, 3]);
  expect(idleTrend(one, { range: { first_ms: null, last_ms: null } } as unknown as Report, details)).toEqual([]);
});
