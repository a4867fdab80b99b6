import { expect, it } from "vitest";
import type { Action, Decision } from "../../reclaim/types";
import { listActions, listDecisions, listHostRefusals, timeOf } from "./entries";

const decision = (name: string, more: Partial<Decision>): Decision =>
  ({ cluster: "", kind: "Job", namespace: "a", name, gpus: 1, outcome: "wait", due_at: null, answers: [], ...more }) as unknown as Decision;

it("what is due first stands first", () => {
  const rows = listDecisions([
    decision("later", { due_at: "2026-11-17T04:00:00Z" }),
    decision("some-time", {}),
    decision("now", { outcome: "act" }),
    decision("soon", { due_at: "2026-11-17T03:00:00Z" }),
  ]);
  expect(rows.map((each) => each.type === "decision" && each.decision.name)).toEqual(["now", "soon", "later", "some-time"]);
});

it("a planned action is done only as a dry run", () => {
  const actions = [
    { id: "1", state: "planned", is_dry_run: true },
    { id: "2", state: "planned", is_dry_run: false },
    { id: "3", state: "verified", is_dry_run: false },
  ] as unknown as Action[];
  expect(listActions(actions, "done").map((each) => each.key)).toEqual(["1", "3"]);
  expect(listActions(actions, "all").map((each) => each.key)).toEqual(["1", "2", "3"]);
});

it("the last time of an action counts", () => {
  expect(timeOf({ ended_at: null, acted_at: "b", updated_at: "c", created_at: "d" })).toBe("b");
  expect(timeOf({ ended_at: null, acted_at: null, updated_at: null, created_at: "d" })).toBe("d");
});

it("refusals for work on the host are counted by signal", () => {
  expect(listHostRefusals({ mode: "enforce", refused_by_cpu: 2, refused_by_disk: 0, refused_by_network: 1 })).toEqual([{ signal: "cpu", n: 2 }, { signal: "network", n: 1 }]);
  expect(listHostRefusals({})).toEqual([]);
});
