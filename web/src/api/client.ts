/** The API of the analyzer: typed paths, problem objects, CSRF, ETag. */
import { language } from "../i18n/language";
import type { paths } from "./schema";

type Method = "get" | "post" | "delete";
type PathOf<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never }[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;

/** The JSON of a successful response. */
export type Answer<P extends keyof paths, M extends Method = "get"> =
  Operation<P, M> extends { responses: { 200: { content: { "application/json": infer T } } } } ? T : unknown;

type Value = string | number | boolean | null | undefined;
/** A list is repeated: `state=acted&state=verified`. */
export type Parameters = Readonly<Record<string, Value | readonly string[]>>;

/** Why a request failed, as the API describes it (RFC 9457), or as the browser does. */
export class Problem extends Error {
  constructor(
    /** The HTTP status; 0: there was no response. */
    readonly status: number,
    /** The last part of `urn:gpusteward:problem:NAME`; `offline` without a response. */
    readonly kind: string,
    detail: string,
  ) {
    super(detail);
  }

  get isForbidden(): boolean {
    return this.status === 401 || this.status === 403;
  }
}

/** The token of writes with a session cookie. It is kept in memory only. */
let csrfToken = "";
export function setCsrfToken(token: string): void {
  csrfToken = token;
}

let onUnauthenticated: () => void = () => undefined;
/** Called when the API wants a sign-in. */
export function whenUnauthenticated(callback: () => void): void {
  onUnauthenticated = callback;
}

/** `/api/v1/nodes/{node}` with its fields filled in, relative to the base path of the page. */
export function buildUrl(path: string, parameters: Parameters = {}): string {
  const used = new Set<string>();
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    used.add(name);
    return encodeURIComponent(String(parameters[name] ?? ""));
  });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (used.has(name) || value === undefined || value === null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) query.append(name, String(each));
  }
  const text = query.toString();
  return `..${filled}${text ? `?${text}` : ""}`;
}

interface Cached {
  readonly etag: string;
  readonly data: unknown;
}

const MOST_CACHED = 40;
const cache = new Map<string, Cached>();

function remember(url: string, cached: Cached): void {
  cache.delete(url);
  cache.set(url, cached);
  const oldest = cache.keys().next();
  if (cache.size > MOST_CACHED && !oldest.done) cache.delete(oldest.value);
}

/** Forget everything: another person signed in. */
export function clearCache(): void {
  cache.clear();
}

export async function get<P extends PathOf<"get">>(path: P, parameters: Parameters = {}, signal?: AbortSignal): Promise<Answer<P>> {
  return (await readUrl(buildUrl(path, parameters), signal)) as Answer<P>;
}

/** The same object again while the server answers 304, so that nothing is drawn twice. */
export async function readUrl(url: string, signal?: AbortSignal): Promise<unknown> {
  const key = `${language.peek()} ${url}`;
  const cached = cache.get(key);
  const response = await send(url, { signal: signal ?? null, headers: cached ? { "If-None-Match": cached.etag } : {} });
  if (response.status === 304 && cached) return cached.data;
  const data: unknown = await response.json();
  const etag = response.headers.get("ETag");
  if (etag) remember(key, { etag, data });
  return data;
}

export async function write<P extends keyof paths, M extends "post" | "delete">(
  method: M,
  path: P,
  parameters: Parameters = {},
  body?: unknown,
): Promise<Answer<P, M>> {
  const headers: Record<string, string> = csrfToken ? { "X-Gpusteward-CSRF": csrfToken } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method: method.toUpperCase(), headers };
  if (body !== undefined) init.body = JSON.stringify(body);
  const response = await send(buildUrl(path, parameters), init);
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as Answer<P, M>;
}

async function send(url: string, init: RequestInit): Promise<Response> {
  const headers = { Accept: "application/json", "Accept-Language": language.peek(), ...(init.headers as Record<string, string>) };
  let response: Response;
  try {
    response = await fetch(url, { ...init, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "offline", "");
  }
  if (response.ok || response.status === 304) return response;
  const problem = await readProblem(response);
  if (response.status === 401) onUnauthenticated();
  throw problem;
}

async function readProblem(response: Response): Promise<Problem> {
  try {
    const { type = "", detail = "" } = (await response.json()) as { type?: string; detail?: string };
    return new Problem(response.status, type.split(":").at(-1) ?? "", detail);
  } catch {
    return new Problem(response.status, "http", response.statusText);
  }
}

export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
