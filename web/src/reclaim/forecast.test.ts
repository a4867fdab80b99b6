import { describe, expect, it } from "vitest";
import { listFields, makeForecast, nameField, partOf, showValue, sortGuards } from "./forecast";
import type { Guard } from "./types";

const yes: Guard = { guard: "idle", passed: true, reason: "all of its GPUs (2) are idle" };
const no: Guard = { guard: "warned", passed: false, reason: "the grace period is not over" };
const unasked: Guard = { guard: "kind", passed: null, reason: "not looked at" };

describe("what will happen when", () => {
  it("has a time while only time is missing", () => {
    const due_at = "2026-11-17T03:45:28Z";
    expect(makeForecast({ outcome: "wait", due_at, answers: [yes, no] })).toEqual({ kind: "wait", at: Date.parse(due_at), reason: no.reason });
    expect(makeForecast({ outcome: "act", due_at, answers: [yes] })).toEqual({ kind: "act", at: null, reason: "" });
  });
  it("has the reason where something forbids it", () => {
    expect(makeForecast({ outcome: "refuse", due_at: null, answers: [yes, no] })).toEqual({ kind: "refuse", at: null, reason: no.reason });
  });
});

it("guards that say no come first", () => {
  expect(sortGuards([yes, no, unasked])).toEqual({ against: [no], unasked: [unasked], passed: [yes] });
});

describe("what changes", () => {
  it("names fields as people write them", () => {
    expect(nameField("/spec/replicas")).toBe("spec.replicas");
    expect(nameField("/metadata/annotations/gpusteward.io~1reason")).toBe("metadata.annotations[gpusteward.io/reason]");
    expect(nameField("/spec/a~0b")).toBe("spec.a~b");
  });
  it("lists what is written, with what was there", () => {
    expect(listFields({ "/spec/replicas": 3 }, { "/spec/replicas": 0, "/spec/suspend": true })).toEqual([
      { field: "spec.replicas", before: 3, after: 0 },
      { field: "spec.suspend", before: null, after: true },
    ]);
  });
  it("shows absent values as such", () => {
    expect([showValue(null), showValue(0), showValue(false), showValue("x"), showValue({ a: 1 })]).toEqual([null, "0", "false", "x", '{"a":1}']);
  });
});

it("an action is listed by what became of it", () => {
  const acted_at = "2026-11-17T03:45:28Z";
  expect(partOf({ state: "verified", acted_at, is_dry_run: false })).toBe("done");
  expect(partOf({ state: "planned", acted_at: null, is_dry_run: true })).toBe("done");
  expect(partOf({ state: "warned", acted_at: null, is_dry_run: false })).toBe("other");
  expect(partOf({ state: "restored", acted_at, is_dry_run: false })).toBe("restored");
  expect(partOf({ state: "failed", acted_at, is_dry_run: false })).toBe("refused");
  expect(partOf({ state: "ended", acted_at: null, is_dry_run: false })).toBe("other");
});
