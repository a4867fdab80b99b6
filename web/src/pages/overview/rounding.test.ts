import { expect, it } from "vitest";
import { countSteps, listParts, niceStep, roundToSum } from "./rounding";

it("keeps the sum of the four parts", () => {
  expect(roundToSum([147.002, 47.829, 6.356, 6.813])).toEqual([147, 48, 6, 7]);
  expect(roundToSum([0.5, 0.5])).toEqual([1, 0]);
  expect(roundToSum([1, 2, 3])).toEqual([1, 2, 3]);
});

it("counts the steps of the funnel as the bar does, each a part of the one before", () => {
  const gpus = { total: 208, allocated: 201.187, active: 147.002, suspicious: 0, idle: 47.829, unknown: 6.356, free: 6.813, effective: 120.4 };
  expect(countSteps(gpus)).toEqual({ total: 208, allocated: 201, active: 147, effective: 120 });
  expect(countSteps({ ...gpus, effective: 147.002 }).effective).toBe(147);
  expect(countSteps({ ...gpus, total: null, free: null, effective: 146.9 })).toMatchObject({ active: 147, effective: 147 });
  const small = { total: 4, allocated: 2.5, active: 1.5, suspicious: 0, idle: 1, unknown: 0, free: 1.5, effective: 0.5 };
  expect(countSteps(small)).toEqual({ total: 4, allocated: 2.5, active: 1.5, effective: 0.5 });
});

it("takes the suspicious part of the bar from the active one", () => {
  const gpus = { total: 208, allocated: 201.187, active: 147.002, suspicious: 12.3, idle: 47.829, unknown: 6.356, free: 6.813, effective: 120.4 };
  const parts = listParts(gpus);
  expect(parts).toEqual([134.702, 12.3, 47.829, 6.356, 6.813]);
  expect(roundToSum(parts)).toEqual([135, 12, 48, 6, 7]);
  expect(countSteps(gpus).active).toBe(147);
});

it("chooses steps that people count in", () => {
  expect(niceStep(4800, 3)).toBe(2000);
  expect(niceStep(97, 3)).toBe(50);
  expect(niceStep(0.9, 3)).toBeCloseTo(0.5);
});
