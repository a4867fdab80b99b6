import { expect, it } from "vitest";
import { amountOf, findMeasure } from "./amounts";

const make = (cost: number | null, spell: number | null, hours: number | null) => ({ idle_cost_micros: cost, spell_cost_micros: spell, idle_gpu_hours: hours });

it("measures idle workloads by what is known", () => {
  expect(findMeasure([make(null, 2, 3), make(1, 2, 3)])).toBe("cost");
  expect(findMeasure([make(null, 2, null)])).toBe("spell");
  expect(findMeasure([make(null, null, 3)])).toBe("hours");
  expect(findMeasure([make(null, null, null)])).toBe("none");
  expect(findMeasure([])).toBe("none");
});

it("never shows one measure for another", () => {
  expect(amountOf(make(null, 2, 3), "cost")).toBeNull();
  expect(amountOf(make(1, 2, 3), "hours")).toBe(3);
  expect(amountOf(make(1, 2, 3), "none")).toBeNull();
});
