/** Policies as rows, and the defaults of what they leave out. Pure. */
import type { Answer } from "../../api/client";

export type PolicyPage = Answer<"/api/v1/policies">;
type Fields = Readonly<Record<string, unknown>>;

export interface Rule {
  readonly name: string;
  /** Empty: all workloads that no policy above matches. */
  readonly match: readonly (readonly [string, string])[];
  readonly fields: Fields;
  readonly isBuiltIn: boolean;
}

export function listRules(page: PolicyPage): Rule[] {
  return [
    ...page.policies.map((each) => ({ name: each.name, match: listMatch(each.match), fields: each.fields, isBuiltIn: false })),
    ...page.built_in.map((each) => ({
      name: each.workload_class, match: [["classes", each.workload_class]] as const, fields: each.fields, isBuiltIn: true,
    })),
  ];
}

/** Each condition as text; a list is any of its values, labels are `name=value`. */
export function listMatch(match: Fields): (readonly [string, string])[] {
  return Object.entries(match).flatMap(([name, value]) => {
    const words = Array.isArray(value) ? value.map(String) : Object.entries((value ?? {}) as Fields).map(([key, one]) => `${key}=${String(one)}`);
    return words.length ? [[name, words.join(", ")] as const] : [];
  });
}

export function numberOf(fields: Fields, name: string): number | null {
  const value = fields[name];
  return typeof value === "number" ? value : null;
}

export function textOf(fields: Fields, name: string): string {
  const value = fields[name];
  return typeof value === "string" ? value : "";
}
