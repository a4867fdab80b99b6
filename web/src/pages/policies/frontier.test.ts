import { describe, expect, it } from "vitest";
import { compare, findBest, findFrontier, makeScale, type Totals } from "./frontier";

const point = (gpu_hours: number, regret: number | null, releases = 10): Totals => ({
  name: "", releases, regretted: 0, regret, gpu_hours, cost: gpu_hours * 2, oracle_share: null, unmet_gpu_hours: 0, window_minutes: 30,
});

describe("the frontier", () => {
  it("has only what no other window beats", () => {
    const [a, b, c, d] = [point(100, 0.3), point(90, 0.1), point(60, 0.1), point(80, 0.2)];
    expect(findFrontier([a, b, c, d])).toEqual([b, a]);
  });
  it("leaves out windows that release nothing", () => expect(findFrontier([point(0, null, 0)])).toEqual([]));
});

it("the best window keeps regret low", () => {
  expect(findBest([point(100, 0.3), point(80, 0.15), point(90, 0.1)])).toBe(2);
  expect(findBest([point(100, 0.3)])).toBe(0);
  expect(findBest([])).toBe(0);
});

describe("the scale", () => {
  it("has round numbers from zero", () => expect(makeScale([0, 0.11, 0.148]).ticks).toEqual([0, 0.05, 0.1, 0.15000000000000002]));
  it("leaves zero out where all values are far away from it", () => {
    const { least, most, ticks } = makeScale([1200, 1425]);
    expect(least).toBeGreaterThan(1000);
    expect(most).toBeGreaterThanOrEqual(1425);
    expect(ticks.length).toBeLessThan(8);
  });
  it("survives nothing", () => expect(makeScale([]).ticks.length).toBeGreaterThan(1));
});

it("differences need a price on both sides", () => {
  expect(compare(point(100, 0.2), point(80, 0.1))).toEqual({ hours: 20, cost: 40, regret: 0.1 });
  expect(compare({ ...point(100, 0.2), cost: null }, point(80, 0.1)).cost).toBeNull();
});
