import { expect, it } from "vitest";
import type { Row } from "../pages/workloads/rows";
import { findMatches } from "./search-matches";

function row(namespace: string, name: string, user: string, node: string): Row {
  return {
    id: name, cluster: "", kind: "Job", namespace, name, users: [user], models: [], nodes: [node],
    haystack: `${namespace}/job/${name} ${user} ${node}`.toLowerCase(),
  } as unknown as Row;
}

const ROWS = [row("vision", "train", "liu", "h100-003"), row("speech", "liu-asr", "kim", "h100-004")];

it("finds people, nodes, namespaces and workloads", () => {
  expect(findMatches(ROWS, "liu").map((match) => (match.type === "workload" ? match.key.name : match.name))).toEqual(["liu", "liu-asr", "train"]);
  expect(findMatches(ROWS, "h100").filter((match) => match.type === "node")).toHaveLength(2);
  expect(findMatches(ROWS, "vision train")).toMatchObject([{ type: "workload", key: { name: "train" } }]);
});

it("finds nothing for nothing", () => {
  expect(findMatches(ROWS, "  ")).toEqual([]);
  expect(findMatches(ROWS, "zzz")).toEqual([]);
});
