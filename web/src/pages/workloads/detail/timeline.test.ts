import { describe, expect, it } from "vitest";
import { findSnooze, groupSpells, listEvents, makeStrip } from "./timeline";

const verdict = (at: string, activity: "active" | "idle") => ({
  at, activity, signature: activity === "idle" ? "parked" as const : "steady" as const, state: "low" as const, score: 1, allocations: 1, idle_allocations: 0, idle_since: null,
});
const snooze = (created: string, until: string, ended: string | null = null) => ({
  cluster: "", kind: "Job", namespace: "a", name: "b", until, reason: "test", who: "kim", created_at: created, ended_at: ended, ended_by: "",
});

const spell = (started: string, ended: string | null) => ({
  started_at: started, ended_at: ended, ended_by: ended ? "work" : "", proof: "integrated" as const, signature: "parked" as const, gpus: 1, pod: "p", node: "n", gpu: "a",
});
const at = (text: string) => Date.parse(text) / 1000;

describe("the history", () => {
  const verdicts = [verdict("2026-11-02T00:00:00Z", "idle"), verdict("2026-11-01T00:00:00Z", "active")];

  it("lists what happened with the newest first", () => {
    const events = listEvents({
      verdicts,
      spells: [],
      notices: [{ at: "2026-11-02T01:00:00Z", kind: "idle", channel: "ops", deliveries: [] }],
      snoozes: [snooze("2026-11-02T02:00:00Z", "2026-11-09T00:00:00Z", "2026-11-03T00:00:00Z")],
    });
    expect(events.map((event) => event.type)).toEqual(["snooze-end", "snooze", "notice", "verdict", "verdict"]);
  });

  it("makes a strip of the idle spells of a GPU that adds up", () => {
    const range = { from: at("2026-11-01T00:00:00Z"), to: at("2026-11-04T00:00:00Z"), since: at("2026-11-01T12:00:00Z") };
    const pieces = makeStrip([spell("2026-11-03T00:00:00Z", null), spell("2026-11-02T00:00:00Z", "2026-11-02T06:00:00Z")], range);
    expect(pieces.map((piece) => piece.kind)).toEqual([null, "held", "idle", "held", "idle"]);
    expect(pieces.reduce((sum, piece) => sum + piece.seconds, 0)).toBe(3 * 86_400);
  });

  it("cuts a spell that began before the range or before it was recorded", () => {
    const range = { from: at("2026-11-02T00:00:00Z"), to: at("2026-11-04T00:00:00Z"), since: 0 };
    expect(makeStrip([spell("2026-10-01T00:00:00Z", null)], range)).toMatchObject([{ kind: "idle", seconds: 2 * 86_400 }]);
    expect(makeStrip([], range)).toMatchObject([{ kind: "held", seconds: 2 * 86_400 }]);
  });

  it("counts a spell of several GPUs once", () => {
    const both = [spell("2026-11-03T00:00:00Z", null), { ...spell("2026-11-03T00:00:30Z", null), gpu: "b" }];
    expect(groupSpells(both)).toMatchObject([{ gpus: 2, endedAt: null }]);
  });

  it("knows the snooze in force", () => {
    const now = Date.parse("2026-11-05T00:00:00Z");
    expect(findSnooze([snooze("2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z")], now)?.who).toBe("kim");
    expect(findSnooze([snooze("2026-11-02T00:00:00Z", "2026-11-04T00:00:00Z")], now)).toBeUndefined();
    expect(findSnooze([snooze("2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z", "2026-11-03T00:00:00Z")], now)).toBeUndefined();
  });
});
