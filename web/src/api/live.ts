/** Server-sent events: one connection for the whole page, with backoff. An event only says that there is something new. */
import { signal } from "@preact/signals";

export interface CycleEvent {
  readonly tag: string;
  readonly at: string;
  readonly seconds: number;
}

/** The last finished cycle. Resources read again when its tag changes. */
export const lastCycle = signal<CycleEvent | null>(null);
export const isConnected = signal(false);

/** Counts everything that is worth reading again: cycles, changes of health, a return to the tab. */
export const revision = signal(0);

const FIRST_READ_MS = 3000;
const FIRST_DELAY = 1000;
const LONGEST_DELAY = 30_000;
const HIDDEN_LIMIT = 5 * 60_000;

let source: EventSource | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let delay = FIRST_DELAY;
let missed = false;

function announce(): void {
  if (document.hidden) missed = true;
  else revision.value++;
}

function connect(): void {
  clearTimeout(timer);
  source?.close();
  source = new EventSource("../api/v1/events");
  source.addEventListener("open", () => {
    delay = FIRST_DELAY;
    isConnected.value = true;
  });
  source.addEventListener("cycle", (event) => {
    const cycle = JSON.parse((event as MessageEvent<string>).data) as CycleEvent;
    const before = lastCycle.value?.tag;
    if (cycle.tag === before) return;
    lastCycle.value = cycle;
    // The first event repeats the last cycle, which a page that just opened reads anyway.
    if (before !== undefined || performance.now() > FIRST_READ_MS) announce();
  });
  source.addEventListener("health", announce);
  source.addEventListener("error", onError);
}

/** The browser itself tries again after a broken connection, but gives up after an HTTP error. */
function onError(): void {
  isConnected.value = false;
  if (source?.readyState !== EventSource.CLOSED) return;
  timer = setTimeout(connect, delay);
  delay = Math.min(delay * 2, LONGEST_DELAY);
}

function disconnect(): void {
  clearTimeout(timer);
  source?.close();
  source = null;
  isConnected.value = false;
}

/** A tab that nobody looks at gives its connection back after a while. */
function onVisibility(): void {
  clearTimeout(timer);
  if (document.hidden) {
    timer = setTimeout(disconnect, HIDDEN_LIMIT);
    return;
  }
  if (!source || source.readyState === EventSource.CLOSED) connect();
  if (missed) {
    missed = false;
    revision.value++;
  }
}

export function startLive(): void {
  document.addEventListener("visibilitychange", onVisibility);
  window.addEventListener("online", connect);
  connect();
}

/** Connect again with the rights of another person. */
export function restartLive(): void {
  disconnect();
  connect();
}
