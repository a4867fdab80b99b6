import { describe, expect, it } from "vitest";
import { groupGpus, makeParts, type Group, type MapData } from "./fleet";
import { findCell, findTile, fitLayout, makeLayout, moveTile, SIZES, tileBox, visibleBands } from "./layout";

function makeNodes(nodes: number, gpus: number): Group[] {
  return Array.from({ length: nodes }, (_, node) => ({
    label: `node-${node}`,
    members: Array.from({ length: gpus }, (_, gpu) => node * gpus + gpu),
    namespace: -1,
  }));
}

const FLEET: MapData = {
  clusters: ["east"],
  nodes: { name: ["a", "b"], cluster: [0, 0] },
  models: ["H100", "L4"],
  namespaces: ["vision", "speech"],
  activities: ["active", "idle", "unknown"],
  signatures: ["steady", "hung"],
  verdicts: ["active", "idle", "suspicious", "unknown"],
  workloads: { cluster: [0, 0], kind: ["Job", "Job"], namespace: [0, 1], name: ["train", "asr"], user: ["liu", "kim"], verdict: [1, 0] },
  gpus: {
    node: [0, 0, 1],
    index: ["0", "1", ""],
    model: [0, 0, 1],
    parts: [[[0.5, 1, 1, 0, null], [0.25, 0, 0, 1, 60]], [[1, 0, 0, 1, 80]], []],
    hidden_holders: [0, 0, 0],
  },
};

describe("the layout of the map", () => {
  it("puts every tile inside and none on another", () => {
    const layout = makeLayout(makeNodes(40, 8), 700, SIZES[0]!);
    const seen = new Set<string>();
    for (const band of layout.bands) {
      for (const cell of band.cells) {
        for (let position = 0; position < cell.count; position++) {
          const box = tileBox(layout, cell, position);
          expect(box.x).toBeGreaterThanOrEqual(0);
          expect(box.x + box.width).toBeLessThanOrEqual(700.5);
          expect(box.y + box.height).toBeLessThanOrEqual(layout.height + 0.5);
          seen.add(`${box.x},${box.y}`);
        }
      }
    }
    expect(seen.size).toBe(320);
  });

  it("finds the tile that was drawn at a point", () => {
    const layout = makeLayout(makeNodes(23, 11), 640, SIZES[1]!);
    for (const [group, position] of [[0, 0], [7, 10], [22, 3]] as const) {
      const box = tileBox(layout, findCell(layout, group)!, position);
      expect(findTile(layout, box.x + 1, box.y + 1)).toMatchObject({ group, position });
    }
  });

  it("finds nothing on a label or beside the groups", () => {
    const layout = makeLayout(makeNodes(3, 8), 640, SIZES[0]!);
    expect(findTile(layout, 5, 5)).toBeNull();
    expect(findTile(layout, 639, 400)).toBeNull();
  });

  it("becomes denser until it fits", () => {
    expect(fitLayout(makeNodes(10, 8), 700, 400).size.tileWidth).toBe(24);
    expect(fitLayout(makeNodes(30, 8), 700, 400).size.tileWidth).toBeLessThan(18);
    expect(fitLayout(makeNodes(1250, 8), 700, 400).size).toBe(SIZES.at(-1));
  });

  it("draws a few servers large, but not one below the other beside an empty half", () => {
    expect(fitLayout(makeNodes(8, 8), 970, 690).size.tileWidth).toBe(42);
    const layout = fitLayout(makeNodes(4, 8), 700, 480);
    expect([layout.size.tileWidth, layout.bands[0]!.cells.length]).toEqual([32, 2]);
    expect(fitLayout(makeNodes(4, 8), 160, 900).size.tileWidth).toBe(18);
  });

  it("uses the height that is left, and no more", () => {
    for (const nodes of [1, 3, 12, 40, 70]) {
      const tight = makeLayout(makeNodes(nodes, 8), 700, SIZES[6]!);
      const layout = fitLayout(makeNodes(nodes, 8), 700, 486);
      if (tight.height <= 486) expect(layout.height).toBeLessThanOrEqual(486);
    }
  });

  it("lists only the bands in view", () => {
    const layout = makeLayout(makeNodes(1250, 8), 700, SIZES.at(-1)!);
    const bands = visibleBands(layout, 1000, 1400);
    expect(bands.length).toBeLessThan(20);
    expect(bands[0]!.y + bands[0]!.height).toBeGreaterThan(1000);
    expect(bands.at(-1)!.y).toBeLessThan(1400);
  });

  it("lays out 10,000 GPUs without a visible pause", () => {
    const groups = makeNodes(1250, 8);
    const before = performance.now();
    for (let round = 0; round < 10; round++) makeLayout(groups, 700, SIZES.at(-1)!);
    expect((performance.now() - before) / 10).toBeLessThan(100);
  });

  it("moves with the arrow keys across groups", () => {
    const layout = makeLayout(makeNodes(40, 8), 700, SIZES[0]!);
    expect(moveTile(layout, { group: 0, position: 7 }, "ArrowRight")).toEqual({ group: 1, position: 0 });
    expect(moveTile(layout, { group: 1, position: 0 }, "ArrowLeft")).toEqual({ group: 0, position: 7 });
    const down = moveTile(layout, { group: 0, position: 3 }, "ArrowDown");
    expect(down.position).toBe(3);
    expect(down.group).toBeGreaterThan(0);
    expect(moveTile(layout, { group: 0, position: 0 }, "ArrowUp")).toEqual({ group: 0, position: 0 });
  });

  it("fills the width with large groups", () => {
    const layout = makeLayout(makeNodes(8, 56), 700, SIZES[5]!);
    const right = Math.max(...layout.bands[0]!.cells.map((cell) => cell.x + cell.width));
    expect(layout.bands[0]!.cells.length).toBeGreaterThan(1);
    expect(right).toBeGreaterThan(690);
    expect(layout.bands[0]!.cells[0]!.width).toBeGreaterThan(200);
  });

  it("survives an empty fleet", () => {
    const layout = makeLayout([], 700, SIZES[0]!);
    expect(layout.height).toBe(0);
    expect(findTile(layout, 10, 10)).toBeNull();
  });
});

describe("the parts of a tile", () => {
  it("add up to the whole GPU, with the free rest at the bottom", () => {
    const parts = makeParts(FLEET, 0);
    expect(parts.map((part) => part.kind)).toEqual(["active", "idle", "free"]);
    expect(parts.at(-1)!.to).toBe(1);
    expect(parts[0]!.from).toBe(0);
  });

  it("are suspicious where the active GPU is of a suspicious workload, and idle where it is idle", () => {
    const data = { ...FLEET, workloads: { ...FLEET.workloads, verdict: [2, 2] } };
    expect(makeParts(data, 0).map((part) => part.kind)).toEqual(["suspicious", "idle", "free"]);
  });

  it("are one outline for a free GPU", () => {
    expect(makeParts(FLEET, 2)).toMatchObject([{ kind: "free", from: 0, to: 1, workload: -1 }]);
  });

  it("show one namespace only in its group", () => {
    const groups = groupGpus(FLEET, "namespace", "free");
    expect(groups.map((group) => [group.label, group.members])).toEqual([["speech", [0, 1]], ["vision", [0]], ["free", [2]]]);
    expect(makeParts(FLEET, 0, 0).map((part) => part.kind)).toEqual(["idle", "other", "free"]);
  });

  it("are in groups of their own cluster where there are several", () => {
    const data: MapData = {
      ...FLEET,
      clusters: ["east", "west"],
      nodes: { name: ["a", "a"], cluster: [0, 1] },
      gpus: { node: [0, 1], index: ["0", "0"], model: [0, 0], parts: [[[1, 0, 0, 0, 80]], [[1, 1, 0, 0, 80]]], hidden_holders: [0, 0] },
    };
    const labels = (grouping: "node" | "namespace" | "cluster") => groupGpus(data, grouping, "free").map((group) => [group.label, group.members]);
    expect(labels("node")).toEqual([["east/a", [0]], ["west/a", [1]]]);
    expect(labels("namespace")).toEqual([["east / vision", [0]], ["west / vision", [1]]]);
    expect(labels("cluster")).toEqual([["east", [0]], ["west", [1]]]);
    expect(groupGpus(FLEET, "node", "free").map((group) => group.label)).toEqual(["a", "b"]);
  });

  it("share a time-sliced GPU that two hold whole", () => {
    const data = { ...FLEET, gpus: { ...FLEET.gpus, parts: [[[1, 0, 0, 0, 1], [1, 1, 1, 1, 1]], [], []] } };
    expect(makeParts(data, 0).map((part) => part.to)).toEqual([0.5, 1]);
  });
});
