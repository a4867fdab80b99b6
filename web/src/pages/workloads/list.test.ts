import { describe, expect, it } from "vitest";
import { COLUMNS, findColumn, findKnown, makeCsv, nextSort, readColumns, readSort, sortRows, writeColumns } from "./columns";
import { compileQuery, parseQuery, setLimit, setValues, toggleValue, valuesOf } from "./query";
import type { Row } from "./rows";

const NOW = 1_800_000_000;

function makeRow(changes: Partial<Row> = {}): Row {
  const row = {
    id: "", cluster: "", kind: "Job", namespace: "vision", name: "train", users: ["liu"], models: ["NVIDIA H100 80GB HBM3"],
    nodes: ["h100-003"], nodesTotal: 1, activity: "idle", verdict: "idle", state: "idle", signature: "hung", proof: "integrated", score: 18.5,
    gpus: 2, idleGpus: 2, unknownGpus: 0, allocations: 2, idleSince: NOW - 7200, costPerHour: 8e6, idleCostPerHour: 8e6,
    costSpell: 16e6, costWeek: 332e6, snoozedUntil: null, haystack: "", ...changes,
  };
  return { ...row, id: row.id || row.name, haystack: `${row.namespace}/${row.kind}/${row.name} ${row.users.join(" ")} ${row.models.join(" ")} ${row.nodes.join(" ")}`.toLowerCase() };
}

const finds = (query: string, row: Row) => compileQuery(parseQuery(query), NOW)(row);

describe("the search", () => {
  const row = makeRow();

  it("looks for words in names, people, models and nodes", () => {
    for (const word of ["TRAIN", "liu", "h100", "vision/job", "h100-003"]) expect(finds(word, row)).toBe(true);
    expect(finds("train kim", row)).toBe(false);
  });

  it("takes one of several values of a field", () => {
    expect(finds("namespace:speech,vision", row)).toBe(true);
    expect(finds("ns:vis", row)).toBe(false);
    expect(finds("ns:vis*", row)).toBe(true);
    expect(finds("model:h100", row)).toBe(true);
    expect(finds("state:active", row)).toBe(false);
    expect(finds("verdict:idle,unknown", row)).toBe(true);
    expect(finds("verdict:suspicious", row)).toBe(false);
    expect(finds("verdict:suspicious state:active", makeRow({ activity: "active", verdict: "suspicious" }))).toBe(true);
  });

  it("negates", () => {
    expect(finds("-namespace:vision", row)).toBe(false);
    expect(finds("-hung-job", row)).toBe(true);
  });

  it("compares durations and numbers", () => {
    expect(finds("idle>1h", row)).toBe(true);
    expect(finds("idle>=2h", row)).toBe(true);
    expect(finds("idle>1d", row)).toBe(false);
    expect(finds("idle<90m", row)).toBe(false);
    expect(finds("cost>300 gpus=2 score<20", row)).toBe(true);
    expect(finds("idle>1h", makeRow({ idleSince: null }))).toBe(false);
  });

  it("names what it does not understand, and goes on without it", () => {
    const { terms, errors } = parseQuery("idle>soon colour:red train");
    expect(errors).toEqual(["idle>soon", "colour:red"]);
    expect(terms).toHaveLength(1);
  });

  it("keeps quoted text together", () => {
    expect(finds('model:"nvidia h100"', row)).toBe(true);
    expect(finds('"nvidia h100"', row)).toBe(true);
    expect(finds('"nvidia a100"', row)).toBe(false);
  });

  it("is edited by the menus without losing what was typed", () => {
    expect(toggleValue("moe idle>1h", "namespace", "vision")).toBe("moe idle>1h namespace:vision");
    expect(toggleValue("namespace:vision moe", "namespace", "speech")).toBe("moe namespace:vision,speech");
    expect(toggleValue("namespace:vision moe", "namespace", "Vision")).toBe("moe");
    expect(setValues("", "model", ["nvidia a10"])).toBe('model:"nvidia a10"');
    expect(valuesOf("ns:a,b", "namespace")).toEqual(["a", "b"]);
    expect(setLimit("moe idle>1h", "idle", ">1d")).toBe("moe idle>1d");
    expect(setLimit("moe idle>1h", "idle", "")).toBe("moe");
  });

  it("shows a name with markup as what it is", () => {
    const strange = makeRow({ name: "<img src=x onerror=alert(1)>" });
    expect(finds('"<img src=x"', strange)).toBe(true);
  });
});

describe("the list", () => {
  const rows = [makeRow({ name: "a", costWeek: 5e6 }), makeRow({ name: "b", costWeek: null }), makeRow({ name: "c", costWeek: 9e6 })];
  const names = (sort: string) => sortRows(rows, readSort(sort)).map((row) => row.name).join("");

  it("sorts both ways with missing values last", () => {
    expect(names("-cost")).toBe("cab");
    expect(names("cost")).toBe("acb");
    expect(names("nonsense")).toBe("cab");
  });

  it("changes direction with the second click", () => {
    const cost = findColumn("cost")!;
    expect(nextSort(readSort("-cost"), cost)).toBe("cost");
    expect(nextSort(readSort("cost"), findColumn("workload")!)).toBe("workload");
  });

  it("keeps the columns in the address, the default one empty", () => {
    expect(readColumns("").map((column) => column.name)).toEqual(["workload", "user", "gpus", "signature", "idle", "cost"]);
    expect(readColumns("", 1400).length).toBeGreaterThan(6);
    expect(readColumns("", 390).map((column) => column.name)).toEqual(["workload", "idle", "cost"]);
    expect(readColumns("cost,node").map((column) => column.name)).toEqual(["workload", "node", "cost"]);
    expect(writeColumns(["cost", "idle", "signature", "gpus", "user", "workload"])).toBe("");
    expect(writeColumns(["cost", "workload"])).toBe("workload,cost");
  });

  it("has other columns and another order where money is not known", () => {
    const unpriced = [makeRow({ costWeek: null, costSpell: null })];
    const unrecorded = [makeRow({ costWeek: null }), makeRow({ costWeek: null, costSpell: null })];
    expect([rows, unrecorded, unpriced, []].map(findKnown)).toEqual(["all", "spell", "none", "all"]);
    const shown = (known: "spell" | "none") => readColumns("", 800, known).map((column) => column.name);
    expect(shown("spell")).toEqual(["workload", "user", "gpus", "signature", "idle", "spell"]);
    expect(shown("none")).toEqual(["workload", "user", "gpus", "signature", "idle-gpus", "idle"]);
    expect(readColumns("cost", 800, "none").map((column) => column.name)).toEqual(["workload", "cost"]);
    expect(readSort("", "none").column.name).toBe("idle");
    expect(readSort("nonsense", "spell").column.name).toBe("spell");
    expect(readSort("cost", "none").column.name).toBe("cost");
  });

  it("writes CSV that a spreadsheet does not run", () => {
    const row = makeRow({ name: '=HYPERLINK("x")', namespace: "=cmd", users: ["-kim, liu"] });
    const csv = makeCsv([row], [findColumn("workload")!, findColumn("user")!, findColumn("cost")!, findColumn("idle")!]);
    expect(csv.split("\r\n")).toEqual([
      "workload,user,idle_cost_7d,idle_since",
      `"'=cmd/Job/=HYPERLINK(""x"")","'-kim, liu",332,${new Date((NOW - 7200) * 1000).toISOString()}`,
      "",
    ]);
  });

  it("has a name for every column once", () => {
    expect(new Set(COLUMNS.map((column) => column.name)).size).toBe(COLUMNS.length);
  });

  it("filters and sorts 10,000 rows within a frame or two", () => {
    const many = Array.from({ length: 10_000 }, (_, at) => makeRow({ name: `train-${at}`, costWeek: (at * 7919) % 10_000 }));
    const test = compileQuery(parseQuery("namespace:vision idle>1h train"), NOW);
    const before = performance.now();
    const shown = sortRows(many.filter(test), readSort("-cost"));
    expect(shown).toHaveLength(10_000);
    expect(performance.now() - before).toBeLessThan(5000);
  });
});
