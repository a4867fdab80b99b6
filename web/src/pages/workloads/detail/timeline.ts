/** The history of a workload as one list of events, and the idle spells of each GPU as a strip. Pure. */
import type { Answer } from "../../../api/client";

export type HistoryData = Answer<"/api/v1/workloads/{kind}/{namespace}/{name}/history">;
type Action = Answer<"/api/v1/actions">["items"][number];
type Verdict = HistoryData["verdicts"][number];
type Spell = HistoryData["spells"][number];
type Notice = HistoryData["notices"][number];
type Snooze = HistoryData["snoozes"][number];

export type Event =
  | { readonly type: "verdict"; readonly at: string; readonly verdict: Verdict }
  | { readonly type: "spell"; readonly at: string; readonly spell: SpellGroup }
  | { readonly type: "notice"; readonly at: string; readonly notice: Notice }
  | { readonly type: "step"; readonly at: string; readonly step: Action["steps"][number]; readonly action: Action }
  | { readonly type: "snooze"; readonly at: string; readonly snooze: Snooze }
  | { readonly type: "snooze-end"; readonly at: string; readonly snooze: Snooze };

/** The newest first. A verdict of which only the score changed is left out. */
export function listEvents({ verdicts, spells, notices, snoozes }: Pick<HistoryData, "verdicts" | "spells" | "notices" | "snoozes">, actions: readonly Action[] = []): Event[] {
  const events: Event[] = [];
  verdicts.forEach((verdict, index) => {
    const before = verdicts[index + 1];
    const isSame = before?.activity === verdict.activity && before.signature === verdict.signature;
    if (verdict.at && !isSame) events.push({ type: "verdict", at: verdict.at, verdict });
  });
  for (const spell of groupSpells(spells)) events.push({ type: "spell", at: spell.startedAt, spell });
  for (const action of actions) for (const step of [...action.steps].reverse()) if (step.at) events.push({ type: "step", at: step.at, step, action });
  for (const notice of notices) if (notice.at) events.push({ type: "notice", at: notice.at, notice });
  for (const snooze of snoozes) {
    if (snooze.created_at) events.push({ type: "snooze", at: snooze.created_at, snooze });
    if (snooze.ended_at) events.push({ type: "snooze-end", at: snooze.ended_at, snooze });
  }
  return events.sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
}

/** The same spell on several GPUs of the workload. */
export interface SpellGroup {
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly endedBy: string;
  readonly signature: string;
  readonly gpus: number;
}

/** Spells that began and ended in the same minute are one; the newest first. */
export function groupSpells(spells: readonly Spell[]): SpellGroup[] {
  const groups = new Map<string, SpellGroup>();
  for (const spell of spells) {
    if (!spell.started_at) continue;
    const key = `${spell.started_at.slice(0, 16)} ${spell.ended_at?.slice(0, 16)} ${spell.ended_by}`;
    const gpus = (groups.get(key)?.gpus ?? 0) + spell.gpus;
    groups.set(key, { startedAt: spell.started_at, endedAt: spell.ended_at, endedBy: spell.ended_by, signature: spell.signature, gpus });
  }
  return [...groups.values()].sort((a, b) => Date.parse(b.startedAt) - Date.parse(a.startedAt));
}

export function groupByGpu(spells: readonly Spell[]): ReadonlyMap<string, readonly Spell[]> {
  const groups = new Map<string, Spell[]>();
  for (const spell of spells) {
    const key = `${spell.node} ${spell.gpu}`;
    groups.set(key, [...(groups.get(key) ?? []), spell]);
  }
  return groups;
}

/** One piece of the strip of a GPU; `kind` is null before the workload was there. */
export interface Piece {
  readonly kind: "idle" | "held" | null;
  readonly seconds: number;
  readonly signature: string;
  /** Unix seconds. */
  readonly from: number;
}

/** The idle spells of one GPU within a range as pieces that add up to it, the oldest first. */
export function makeStrip(spells: readonly Spell[], range: { readonly from: number; readonly to: number; readonly since: number }): Piece[] {
  const { from, to, since } = range;
  const pieces: Piece[] = [];
  const add = (kind: Piece["kind"], start: number, end: number, signature = "") => {
    if (end > start) pieces.push({ kind, seconds: end - start, signature, from: start });
  };
  const start = Math.min(to, Math.max(from, since));
  add(null, from, start);
  let at = start;
  const known = spells.flatMap((one) => (one.started_at ? [{ ...one, from: second(one.started_at), to: one.ended_at ? second(one.ended_at) : to }] : []));
  for (const spell of known.sort((a, b) => a.from - b.from)) {
    const begin = Math.max(at, spell.from);
    const end = Math.min(to, spell.to);
    add("held", at, Math.min(begin, to));
    add("idle", begin, end, spell.signature);
    at = Math.max(at, end);
  }
  add("held", at, to);
  return pieces;
}

const second = (text: string): number => Date.parse(text) / 1000;

/** The snooze in force. */
export function findSnooze(snoozes: readonly Snooze[], now: number): Snooze | undefined {
  return snoozes.find((one) => !one.ended_at && one.until !== null && Date.parse(one.until) > now);
}
