import { describe, expect, it } from "vitest";
import { makePath, type Point, thin, valueAt } from "./signal-lines";

const scale = { from: 0, to: 100, most: 1, width: 100, height: 10 };
const every10 = (values: readonly number[]): Point[] => values.map((value, index) => [index * 10, value]);

describe("the line of a signal", () => {
  it("goes from the bottom for 0 to the top for the most", () => {
    expect(makePath(every10([0, 1]), scale)).toBe("M0.0 10.0L10.0 0.0");
  });

  it("leaves a gap where samples are missing", () => {
    const points: Point[] = [[0, 0], [10, 0], [20, 0], [80, 1], [90, 1]];
    expect(makePath(points, scale).match(/M/g)).toHaveLength(2);
  });

  it("keeps the peak of more samples than pixels", () => {
    const points: Point[] = Array.from({ length: 10_000 }, (_, at) => [at / 100, at === 5000 ? 1 : 0.1]);
    const kept = thin(points, scale);
    expect(kept.length).toBeLessThan(250);
    expect(Math.max(...kept.map((point) => point[1]))).toBe(1);
  });

  it("knows the value at a time, and nothing in a gap", () => {
    const points: Point[] = [[0, 1], [10, 2], [20, 3], [90, 4], [100, 5]];
    expect(valueAt(points, 12)).toBe(2);
    expect(valueAt(points, 70)).toBeNull();
    expect(valueAt(points, -5)).toBeNull();
  });
});
