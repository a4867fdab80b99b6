import { expect, test } from "vitest";
import { linePoints, makeTicks } from "./scale";

test.each([
  [0, [0, 1]],
  [1, [0, 0.5, 1]],
  [3, [0, 1, 2, 3]],
  [4800, [0, 2000, 4000, 6000]],
  [730, [0, 250, 500, 750]],
])("the axis up to %d has the lines %o", (highest, ticks) => {
  expect(makeTicks(highest)).toEqual(ticks);
});

test("a line touches the top with its highest value and spans the width", () => {
  expect(linePoints([0, 5, 10], 100, 20)).toBe("0,20 50,10 100,0");
  expect(linePoints([3], 100, 20)).toBe("0,0");
  expect(linePoints([0, 0], 100, 20)).toBe("0,20 100,20");
});
