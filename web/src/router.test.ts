import { describe, expect, it } from "vitest";
import { formatRoute, parseRoute } from "./router";

describe("the address of a view", () => {
  it("has a page, segments and parameters", () => {
    expect(parseRoute("#/workloads/Job/vision/a%2Fb?q=idle%3E1h&days=7")).toEqual({
      page: "workloads",
      path: ["Job", "vision", "a/b"],
      query: { q: "idle>1h", days: "7" },
    });
  });

  it("is the first page when it is empty", () => {
    expect(parseRoute("")).toEqual({ page: "", path: [], query: {} });
    expect(parseRoute("#/")).toEqual({ page: "", path: [], query: {} });
  });

  it("survives a broken escape", () => {
    expect(parseRoute("#/nodes/%zz").path).toEqual(["%zz"]);
  });

  it("comes back unchanged", () => {
    const href = formatRoute("workloads", ["Job", "a b", "<img src=x>"], { q: "a?b&c", empty: "", none: null });
    expect(parseRoute(href)).toEqual({ page: "workloads", path: ["Job", "a b", "<img src=x>"], query: { q: "a?b&c" } });
  });
});
