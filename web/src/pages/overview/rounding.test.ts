import { expect, it } from "vitest";
import { niceStep, roundToSum } from "./rounding";

it("keeps the sum of the four parts", () => {
  expect(roundToSum([147.002, 47.829, 6.356, 6.813])).toEqual([147, 48, 6, 7]);
  expect(roundToSum([0.5, 0.5])).toEqual([1, 0]);
  expect(roundToSum([1, 2, 3])).toEqual([1, 2, 3]);
});

it("chooses steps that people count in", () => {
  expect(niceStep(4800, 3)).toBe(2000);
  expect(niceStep(97, 3)).toBe(50);
  expect(niceStep(0.9, 3)).toBeCloseTo(0.5);
});
