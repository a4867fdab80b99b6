/** The kind of use or idleness as a small word. The colour repeats the word, it never replaces it. */
import { t, type TextKey } from "../i18n";
import { en } from "../i18n/en";

export type Tone = "active" | "idle" | "unknown" | "suspicious" | "fault" | "good" | "plain";

const TONES: Readonly<Record<string, Tone>> = {
  empty: "idle", parked: "idle", "no-requests": "idle", asleep: "idle", hung: "idle", starved: "suspicious", "keep-alive": "suspicious",
  "health-check": "suspicious", stalled: "suspicious", steady: "active", bursty: "active", starting: "plain", unknown: "unknown",
};

export const signatureTone = (signature: string): Tone => TONES[signature] ?? "plain";

/** A word of the API in the viewer's language; a word that this version does not know stays as it is. */
export function wordOf(prefix: "signature" | "verdict", word: string): string {
  const key = `${prefix}.${word}`;
  return key in en ? t(key as TextKey) : word;
}

export function SignatureBadge({ signature }: { signature: string }) {
  return <Badge tone={signatureTone(signature)}>{wordOf("signature", signature)}</Badge>;
}

export function Badge({ tone, children }: { tone: Tone; children: preact.ComponentChildren }) {
  return <span class={`badge badge-${tone}`}>{children}</span>;
}
