import { expect, it } from "vitest";
import { listMatch, listRules, numberOf, textOf } from "./rules";

it("conditions are text", () => {
  expect(listMatch({ namespaces: ["a", "b-*"], labels: { tier: "lab" }, kinds: [] })).toEqual([["namespaces", "a, b-*"], ["labels", "tier=lab"]]);
});

it("defaults of the classes follow the policies of the file", () => {
  const rules = listRules({
    file: "p.yaml", is_valid: true, error: "", example: "",
    policies: [{ name: "night", match: {}, fields: { window: 600, action: "suspend" } }],
    built_in: [{ workload_class: "batch", fields: { window: 18000 } }],
  });
  expect(rules.map((each) => [each.name, each.isBuiltIn, each.match])).toEqual([["night", false, []], ["batch", true, [["classes", "batch"]]]]);
  expect([numberOf(rules[0]!.fields, "window"), numberOf(rules[0]!.fields, "grace"), textOf(rules[0]!.fields, "action")]).toEqual([600, null, "suspend"]);
});
