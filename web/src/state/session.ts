/** Who the viewer is and what they may do. */
import { computed, signal } from "@preact/signals";
import { clearCache, get, isAborted, Problem, whenUnauthenticated, type Answer } from "../api/client";
import { restartLive } from "../api/live";
import { clearResources } from "../api/resources";

export type Identity = Answer<"/api/v1/me">;

/** null: not known yet. */
export const identity = signal<Identity | null>(null);
/** The API wants a sign-in. */
export const needsSignIn = signal(false);

export const isOperator = computed(() => identity.value !== null && identity.value.role !== "viewer");
export const isAnonymous = computed(() => identity.value?.method === "anonymous");

/** Two letters for the top bar: `sam.lee` is SL. */
export const initials = computed(() => {
  const words = (identity.value?.user ?? "").split("@")[0]!.split(/[\s._:-]+/).filter(Boolean);
  const letters = words.length > 1 ? words[0]![0]! + words.at(-1)![0]! : (words[0] ?? "").slice(0, 2);
  return letters.toUpperCase();
});

export async function readSession(): Promise<void> {
  try {
    identity.value = await get("/api/v1/me");
    needsSignIn.value = false;
  } catch (error) {
    if (isAborted(error)) return;
    if (error instanceof Problem && error.status === 401) needsSignIn.value = true;
  }
}

/** After a sign-in or sign-out: nothing of the person before stays. */
export async function restartSession(): Promise<void> {
  clearCache();
  await readSession();
  clearResources();
  restartLive();
}

export function startSession(): void {
  whenUnauthenticated(() => (needsSignIn.value = true));
  void readSession();
}
