/** Decisions of the plan and actions of the journal as one kind of row. Pure. */
import { rowId } from "../workloads/rows";
import type { Action, Decision } from "../../reclaim/types";

export const PARTS = ["planned", "done", "refused", "restored", "all"] as const;
export type Part = (typeof PARTS)[number];

/** What each part reads from the plan. */
export const OUTCOMES: Readonly<Record<Part, readonly string[]>> = {
  planned: ["act", "warn", "wait"], refused: ["refuse"], done: [], restored: [], all: [],
};

/** What each part reads from the journal; empty: all states. A part that is not here reads nothing. */
export const STATES: Readonly<Partial<Record<Part, readonly string[]>>> = {
  done: ["acting", "acted", "verified", "restoring", "planned"],
  refused: ["refused", "failed"],
  restored: ["restored", "reverted"],
  all: [],
};

export type Entry =
  | { readonly type: "decision"; readonly key: string; readonly decision: Decision }
  | { readonly type: "action"; readonly key: string; readonly action: Action };

/** Those that are due first stand first; a refusal is listed by the GPUs it concerns. */
export function listDecisions(decisions: readonly Decision[]): Entry[] {
  const due = (each: Decision) => (each.outcome === "act" ? 0 : each.due_at ? Date.parse(each.due_at) : Number.MAX_SAFE_INTEGER);
  const sorted = [...decisions].sort((a, b) => due(a) - due(b) || b.gpus - a.gpus);
  return sorted.map((decision) => ({ type: "decision", key: `plan ${rowId(decision)}`, decision }));
}

/** In mode enforce a planned action is not done yet; in mode observe it is a dry run, and stays one. */
export function listActions(actions: readonly Action[], part: Part): Entry[] {
  const shown = actions.filter((each) => part !== "done" || each.state !== "planned" || each.is_dry_run);
  return shown.map((action) => ({ type: "action", key: action.id, action }));
}

/** The time that matters most for an action. */
export function timeOf(action: Pick<Action, "ended_at" | "acted_at" | "updated_at" | "created_at">): string | null {
  return action.ended_at ?? action.acted_at ?? action.updated_at ?? action.created_at;
}

export const HOST_SIGNALS = ["cpu", "disk", "network"] as const;

/** How many workloads of the last plan are refused for what their pods do on their hosts; without signals that refuse none. */
export function listHostRefusals(details: Readonly<Record<string, unknown>>): readonly { readonly signal: (typeof HOST_SIGNALS)[number]; readonly n: number }[] {
  return HOST_SIGNALS.map((signal) => ({ signal, n: Number(details[`refused_by_${signal}`] ?? 0) })).filter(({ n }) => n > 0);
}
