/** What the analyzer says about its sources. The API describes them as plain data: here it gets its shape. Pure. */
import type { Answer } from "../../api/client";

export type Health = Answer<"/api/v1/health">;

export interface Scheme {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly metrics: readonly string[];
}

export interface Target {
  readonly target: string;
  readonly error: string;
  readonly failures_in_a_row: number;
  /** Unix seconds; 0 or null: never. */
  readonly scraped_at: number | null;
  readonly seconds: number | null;
  readonly page_bytes: number | null;
  readonly series: number | null;
}

/** One engine, or the embedded scraper. */
export interface Source {
  readonly url: string;
  readonly engine: string;
  readonly version: string;
  readonly error: string;
  readonly schemes: readonly Scheme[];
  readonly intervals: readonly { readonly name: string; readonly seconds: number }[];
  readonly origins: readonly string[];
  readonly targets: readonly Target[];
  readonly series: number | null;
  readonly isScraper: boolean;
}

type Plain = Readonly<Record<string, unknown>>;

const asRecord = (value: unknown): Plain => (value && typeof value === "object" && !Array.isArray(value) ? (value as Plain) : {});
const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const asText = (value: unknown): string => (typeof value === "string" ? value : "");
const asNumber = (value: unknown): number | null => (typeof value === "number" ? value : null);

export function readSources(described: unknown): readonly Source[] {
  const plain = asRecord(described);
  const engines = asList(plain["engines"]);
  return engines.length ? engines.map((each) => readSource(asRecord(each))) : [readSource(plain)];
}

function readSource(plain: Plain): Source {
  return {
    url: asText(plain["url"]),
    engine: asText(plain["engine"]),
    version: asText(plain["version"]),
    error: asText(plain["error"]),
    schemes: asList(plain["dialects"]).map((each) => readScheme(asRecord(each))),
    intervals: Object.entries(asRecord(plain["scrape_intervals_seconds"])).flatMap(([name, seconds]) => (typeof seconds === "number" ? [{ name, seconds }] : [])),
    origins: asList(plain["origins"]).map(asText),
    targets: asList(plain["states"]).map((each) => readTarget(asRecord(each))),
    series: asNumber(plain["series"]),
    isScraper: "states" in plain,
  };
}

function readScheme(plain: Plain): Scheme {
  const labels = Object.entries(asRecord(plain["labels"])).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)]);
  return { name: asText(plain["name"]), labels: Object.fromEntries(labels), metrics: asList(plain["metrics"]).map(asText) };
}

function readTarget(plain: Plain): Target {
  return {
    target: asText(plain["target"]),
    error: asText(plain["error"]),
    failures_in_a_row: asNumber(plain["failures_in_a_row"]) ?? 0,
    scraped_at: asNumber(plain["scraped_at"]),
    seconds: asNumber(plain["seconds"]),
    page_bytes: asNumber(plain["page_bytes"]),
    series: asNumber(plain["series"]),
  };
}

/** Queries and targets that failed, with the reason. */
export function readFailures(described: unknown): readonly { readonly what: string; readonly reason: string }[] {
  return Object.entries(asRecord(asRecord(described)["failures"])).map(([what, reason]) => ({ what, reason: String(reason) }));
}

/** Failing targets first, then by name; `words` must all be in the address or the error. */
export function findTargets(targets: readonly Target[], words: string, onlyFailing: boolean): readonly Target[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return targets
    .filter((each) => (!onlyFailing || each.error) && wanted.every((word) => `${each.target} ${each.error}`.toLowerCase().includes(word)))
    .sort((one, other) => Number(!one.error) - Number(!other.error) || one.target.localeCompare(other.target));
}
