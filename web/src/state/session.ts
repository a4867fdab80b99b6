/** Who the viewer is and what they may do. */
import { computed, signal } from "@preact/signals";
import { type Answer, clearCache, get, isAborted, setCsrfToken, whenUnauthenticated } from "../api/client";
import { restartLive } from "../api/live";
import { clearResources } from "../api/resources";

export type Identity = Answer<"/api/v1/session">;

/** null: not known yet. */
export const identity = signal<Identity | null>(null);
/** The API wants a sign-in. */
export const needsSignIn = signal(false);

export const isOperator = computed(() => identity.value?.may_operate ?? false);
/** May stop and start reclaim as a whole. */
export const isAdmin = computed(() => identity.value?.may_administer ?? false);
export const isAnonymous = computed(() => identity.value?.method === "anonymous");

/** Whether GPU-hours and idle spells are recorded; null: not known yet. */
export const hasLedger = computed(() => identity.value?.features?.ledger ?? null);

/** Two letters for the top bar: `sam.lee` is SL. */
export const initials = computed(() => {
  const words = (identity.value?.user ?? "").split("@")[0]!.split(/[\s._:-]+/).filter(Boolean);
  const letters = words.length > 1 ? words[0]![0]! + words.at(-1)![0]! : (words[0] ?? "").slice(0, 2);
  return letters.toUpperCase();
});

/** Take over what the API says about the session: after reading it, signing in or signing out. */
export function acceptSession(state: Identity): void {
  identity.value = state;
  setCsrfToken(state.csrf);
  needsSignIn.value = !state.may_read;
}

let isReading = false;

export async function readSession(): Promise<void> {
  isReading = true;
  try {
    acceptSession(await get("/api/v1/session"));
  } catch (error) {
    if (!isAborted(error)) setTimeout(() => void readSession(), RETRY_MS);
  }
  isReading = false;
}

const RETRY_MS = 5000;

/** After a sign-in or sign-out: nothing of the person before stays. */
export async function restartSession(): Promise<void> {
  clearCache();
  await readSession();
  clearResources();
  restartLive();
}

export function startSession(): void {
  // Something may need a sign-in that reading does not: the session says whether this page does.
  whenUnauthenticated(() => void (isReading || readSession()));
  void readSession();
}
