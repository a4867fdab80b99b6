/** What will happen to a workload, and when; what a change writes. Pure. */
import type { Action, Decision, Guard } from "./types";

export type Forecast =
  /** `at`: unix milliseconds; null: with the next cycle. */
  | { readonly kind: "act" | "warn" | "wait"; readonly at: number | null; readonly reason: string }
  | { readonly kind: "refuse" | "nothing"; readonly at: null; readonly reason: string };

/** The guard that says no and decides; empty if none does. */
export function firstReason(answers: readonly Guard[]): string {
  return answers.find((each) => each.passed === false)?.reason ?? "";
}

export function makeForecast(decision: Pick<Decision, "outcome" | "due_at" | "answers">): Forecast {
  const reason = firstReason(decision.answers);
  const { outcome } = decision;
  if (outcome === "refuse" || outcome === "nothing") return { kind: outcome, at: null, reason };
  return { kind: outcome, at: outcome === "act" || !decision.due_at ? null : Date.parse(decision.due_at), reason };
}

/** Those that say no first, then those that were not asked, then those that agree; each group in the order it is asked in. */
export function sortGuards(answers: readonly Guard[]): { readonly against: readonly Guard[]; readonly unasked: readonly Guard[]; readonly passed: readonly Guard[] } {
  return {
    against: answers.filter((each) => each.passed === false),
    unasked: answers.filter((each) => each.passed === null),
    passed: answers.filter((each) => each.passed === true),
  };
}

/** `/metadata/annotations/example.com~1stopped` as `metadata.annotations[example.com/stopped]`. */
export function nameField(pointer: string): string {
  const parts = pointer.replace(/^\//, "").split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  return parts.map((part, index) => (/[/.]/.test(part) ? `[${part}]` : index ? `.${part}` : part)).join("");
}

export interface FieldChange {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

export function listFields(before: Readonly<Record<string, unknown>>, after: Readonly<Record<string, unknown>>): FieldChange[] {
  return Object.keys(after).map((pointer) => ({ field: nameField(pointer), before: before[pointer] ?? null, after: after[pointer] ?? null }));
}

/** A value of an object as YAML would show it on one line; null: the field is absent. */
export function showValue(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  return typeof value === "string" ? value : JSON.stringify(value);
}

export type Part = "done" | "restored" | "refused" | "other";

/** Under which part of the journal an action is listed. */
export function partOf(action: Pick<Action, "state" | "acted_at" | "is_dry_run">): Part {
  if (action.state === "restored" || action.state === "reverted") return "restored";
  if (action.state === "refused" || action.state === "failed") return "refused";
  if (action.is_dry_run && action.state === "planned") return "done";
  return action.acted_at && action.state !== "warned" ? "done" : "other";
}

/** The guards as they were when it was acted on. */
export function guardsOf(action: Pick<Action, "evidence">): readonly Guard[] {
  const guards: unknown = action.evidence["guards"];
  return Array.isArray(guards) ? (guards as Guard[]) : [];
}

/** What the person who asks is told: suspended, scaled down or evicted. */
export function wordOfAction(action: string): "suspend" | "scale" | "evict" | "other" {
  if (action === "suspend" || action === "evict") return action;
  return action === "scale-to-keep" ? "scale" : "other";
}
