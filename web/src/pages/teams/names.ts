/** Groupings and groups in words. */
import { texts } from "./texts";

const GROUPINGS = ["namespace", "team", "user", "model"] as const;
type Known = (typeof GROUPINGS)[number];

const LABEL = "label:";
const isKnown = (by: string): by is Known => (GROUPINGS as readonly string[]).includes(by);

export function groupingName(by: string): string {
  return isKnown(by) ? texts(`by-${by}`) : by.replace(LABEL, "");
}

export function columnName(by: string): string {
  return isKnown(by) ? texts(`col-${by}`) : texts("col-label", { label: by.replace(LABEL, "") });
}

/** The name of a group; a group without one is what has no team, user or label. */
export function groupName(group: { readonly name: string; readonly cluster?: string | undefined }, by: string): string {
  if (group.name) return group.cluster ? `${group.cluster} / ${group.name}` : group.name;
  return isKnown(by) ? texts(`no-name-${by}`) : texts("no-name-label");
}
