/** Data of the API with its states. Every reader of the same address shares one request and one value. */
import { effect, signal, untracked, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { language } from "../i18n/language";
import { type Answer, buildUrl, isAborted, type Parameters, Problem, readUrl } from "./client";
import { revision } from "./live";
import type { paths } from "./schema";

/** `stale`: there is data, but the last attempt to refresh it failed. */
export type Status = "loading" | "ready" | "error" | "stale" | "forbidden";

export interface Resource<T> {
  readonly status: Status;
  readonly data: T | undefined;
  readonly problem: Problem | undefined;
  /** When the data was read, in milliseconds. */
  readonly readAt: number;
}

const NOTHING: Resource<never> = { status: "loading", data: undefined, problem: undefined, readAt: 0 };
const MOST_UNUSED = 30;
const RETRY_MS = 10_000;

class Entry {
  readonly state: Signal<Resource<unknown>> = signal(NOTHING);
  users = 0;
  private revision = -1;
  private abort: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly url: string,
    private readonly isLive: boolean,
  ) {}

  open(): void {
    this.users++;
    const isOutdated = this.isLive && this.revision !== revision.peek();
    if (this.state.peek().status !== "ready" || isOutdated) void this.read();
  }

  close(): void {
    if (--this.users > 0) return;
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = undefined;
  }

  onRevision(): void {
    if (this.isLive && this.users > 0 && this.revision !== revision.peek()) void this.read();
  }

  /** At most one request at a time; an event during one leads to one more after it. */
  async read(): Promise<void> {
    if (this.abort) return;
    clearTimeout(this.timer);
    const abort = new AbortController();
    this.abort = abort;
    const asked = revision.peek();
    try {
      const data = await readUrl(this.url, abort.signal);
      this.revision = asked;
      this.state.value = { status: "ready", data, problem: undefined, readAt: Date.now() };
    } catch (error) {
      if (!isAborted(error)) this.fail(error);
    } finally {
      if (this.abort === abort) this.abort = undefined;
    }
    if (this.users > 0 && this.isLive && this.revision === asked && asked !== revision.peek()) void this.read();
  }

  private fail(error: unknown): void {
    const problem = error instanceof Problem ? error : new Problem(0, "unexpected", String(error));
    const before = this.state.peek();
    const status = problem.isForbidden ? "forbidden" : before.data === undefined ? "error" : "stale";
    this.state.value = { ...before, data: problem.isForbidden ? undefined : before.data, status, problem };
    if (this.users > 0 && !problem.isForbidden && problem.status !== 404) this.timer = setTimeout(() => void this.read(), RETRY_MS);
  }
}

const entries = new Map<string, Entry>();

function findEntry(url: string, isLive: boolean): Entry {
  const key = `${language.value} ${url}`;
  const found = entries.get(key);
  if (found) {
    entries.delete(key);
    entries.set(key, found);
    return found;
  }
  const entry = new Entry(url, isLive);
  entries.set(key, entry);
  dropUnused();
  return entry;
}

function dropUnused(): void {
  const unused = [...entries].filter(([, entry]) => entry.users === 0);
  for (const [key] of unused.slice(0, Math.max(0, unused.length - MOST_UNUSED))) entries.delete(key);
}

export interface ResourceOptions {
  /** Read again with every cycle (default), or once. */
  readonly live?: boolean;
}

export interface ResourceView<T> extends Resource<T> {
  readonly refresh: () => void;
}

/** The data of an address, read while the component is mounted; null as path: nothing is read. */
export function useResource<P extends keyof paths>(
  path: P | null,
  parameters: Parameters = {},
  { live = true }: ResourceOptions = {},
): ResourceView<Answer<P>> {
  const url = path === null ? null : buildUrl(path, parameters);
  const spoken = language.value;
  const entry = useMemo(() => (url === null ? null : untracked(() => findEntry(url, live))), [url, live, spoken]);
  useEffect(() => {
    entry?.open();
    return () => entry?.close();
  }, [entry]);
  const state = (entry?.state.value ?? NOTHING) as Resource<Answer<P>>;
  return { ...state, refresh: () => void entry?.read() };
}

/** Read an address again at once, after a write. */
export function refreshMatching(part: string): void {
  for (const [key, entry] of entries) {
    if (!key.includes(part)) continue;
    if (entry.users > 0) void entry.read();
    else entries.delete(key);
  }
}

/** Forget everything: another person signed in. */
export function clearResources(): void {
  for (const [key, entry] of entries) {
    if (entry.users > 0) void entry.read();
    else entries.delete(key);
  }
}

export function startResources(): void {
  effect(() => {
    void revision.value;
    untracked(() => {
      for (const entry of entries.values()) entry.onRevision();
    });
  });
}
