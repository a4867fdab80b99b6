import { expect, test } from "vitest";
import { findTargets, readFailures, readSources } from "./source-data";

const SCRAPER = {
  url: "", engine: "gpusteward", version: "0.1.0", scrape_intervals_seconds: { scrape: 30 }, origins: ["scrape.targets_file"], series: 12,
  dialects: [{ name: "native", labels: { pod: ["exported_pod"] }, metrics: ["a", "b"] }], failures: { targets: "none" },
  states: [
    { target: "http://b/metrics", error: "", failures_in_a_row: 0, scraped_at: 10, seconds: 0.1, page_bytes: 5, series: 6 },
    { target: "http://a/metrics", error: "", failures_in_a_row: 0, scraped_at: 10, seconds: 0.1, page_bytes: 5, series: 6 },
    { target: "http://c/metrics", error: "connection refused", failures_in_a_row: 3, scraped_at: null, seconds: null, page_bytes: null, series: 0 },
  ],
};

test("the embedded scraper has targets, an engine has none", () => {
  const [scraper] = readSources(SCRAPER);
  expect(scraper).toMatchObject({ isScraper: true, engine: "gpusteward", intervals: [{ name: "scrape", seconds: 30 }] });
  expect(scraper!.schemes[0]).toEqual({ name: "native", labels: { pod: "exported_pod" }, metrics: ["a", "b"] });
  const engines = readSources({ url: "one, two", engines: [{ url: "one", engine: "Prometheus" }, { url: "two", error: "refused" }], failures: {} });
  expect(engines.map((each) => [each.url, each.isScraper, each.error])).toEqual([["one", false, ""], ["two", false, "refused"]]);
});

test("whatever the API leaves out is empty", () => {
  expect(readSources({})).toMatchObject([{ url: "", schemes: [], targets: [], series: null }]);
  expect(readSources(null)).toHaveLength(1);
  expect(readFailures(SCRAPER)).toEqual([{ what: "targets", reason: "none" }]);
  expect(readFailures(undefined)).toEqual([]);
});

test("failing targets are first, and words search in address and error", () => {
  const { targets } = readSources(SCRAPER)[0]!;
  const names = (words: string, failing = false) => findTargets(targets, words, failing).map((each) => each.target.at(7)).join("");
  expect([names(""), names("", true), names("REFUSED"), names("metrics b")]).toEqual(["cab", "c", "c", "b"]);
});
