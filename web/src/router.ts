/** The address of the view lives in the hash: `#/workloads/PyTorchJob/vision/train?q=idle`. The server needs no rewriting. */
import { signal } from "@preact/signals";

export interface Route {
  /** The first segment; empty means the first page. */
  readonly page: string;
  /** The segments after the page, decoded. */
  readonly path: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

export type Query = Readonly<Record<string, string | number | undefined | null>>;

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = splitOnce(hash.replace(/^#?\/?/, ""), "?");
  const [page = "", ...rest] = path.split("/").filter(Boolean).map(decode);
  return { page, path: rest, query: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a view; empty values are left out, so that the default view has a short address. */
export function formatRoute(page: string, path: readonly string[] = [], query: Query = {}): string {
  const segments = [page, ...path].map(encodeURIComponent).join("/");
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return `#/${segments}${text ? `?${text}` : ""}`;
}

function splitOnce(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

const inBrowser = typeof window !== "undefined";

export const route = signal<Route>(parseRoute(inBrowser ? location.hash : ""));

/** Parameters that every view shares; a link to another page keeps them. */
export const SHARED_PARAMETERS = ["cluster", "days"] as const;

function keepShared(query: Query): Query {
  const shared = SHARED_PARAMETERS.map((name) => [name, route.value.query[name]] as const);
  return { ...Object.fromEntries(shared), ...query };
}

/** The address of a page with the shared parameters of the current view. */
export function linkTo(page: string, path: readonly string[] = [], query: Query = {}): string {
  return formatRoute(page, path, keepShared(query));
}

export interface NavigateOptions {
  /** Replace the entry of the history: for what changes with every key stroke. */
  readonly replace?: boolean;
}

export function navigate(href: string, { replace = false }: NavigateOptions = {}): void {
  if (href === location.hash) return;
  if (replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  readLocation();
}

/** Change some parameters of the current view. */
export function changeQuery(changes: Query, options: NavigateOptions = {}): void {
  const { page, path, query } = route.value;
  navigate(formatRoute(page, path, { ...query, ...changes }), options);
}

function readLocation(): void {
  route.value = parseRoute(location.hash);
}

export function startRouter(): void {
  window.addEventListener("hashchange", readLocation);
  window.addEventListener("popstate", readLocation);
  readLocation();
}
