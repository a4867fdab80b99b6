import { expect, it } from "vitest";
import { groupByModel, type LendableRow, sumGpus } from "./lendable";

const row = (model: string, horizon: LendableRow["horizon"], gpus: number): LendableRow => ({
  model, horizon, gpus, seconds: 3600, probability: 0.95, expected_gpus: gpus, unknown_gpus: 0, workloads: [], workloads_total: 0,
});

it("one row per model, the most lendable first", () => {
  const items = [row("L4", "1h", 1), row("L4", "4h", 0.5), row("H100", "1h", 3)];
  const rows = groupByModel(items);
  expect(rows.map((each) => each.model)).toEqual(["H100", "L4"]);
  expect(rows[1]!.cells["4h"]!.gpus).toBe(0.5);
  expect(rows[0]!.cells.morning).toBeUndefined();
  expect([sumGpus(items, "1h"), sumGpus(items, "morning")]).toEqual([4, 0]);
});
