import { expect, it } from "vitest";
import { readWorkloadPath, workloadPath } from "./workload-link";

const TRAIN = { cluster: "east", kind: "Job", namespace: "vision", name: "train" };

it("reads the workload that an address names", () => {
  expect(readWorkloadPath(workloadPath(TRAIN))).toEqual(TRAIN);
  const process = { cluster: "", kind: "Process", namespace: "", name: "python" };
  expect(workloadPath(process)).toEqual(["-", "Process", "-", "python"]);
  expect(readWorkloadPath(workloadPath(process))).toEqual(process);
  expect(readWorkloadPath([])).toBeNull();
  expect(readWorkloadPath(["vision"])).toBeNull();
});

it("reads links of earlier notices, which have the cluster as a parameter", () => {
  expect(readWorkloadPath(["Job", "vision", "train"], "east")).toEqual(TRAIN);
  expect(readWorkloadPath(["Job", "vision", "train"])).toEqual({ ...TRAIN, cluster: "" });
});
