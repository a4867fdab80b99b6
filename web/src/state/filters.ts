/** The cluster and the period of the whole page. They live in the address, so that a link shows the same. */
import { computed } from "@preact/signals";
import { changeQuery, route } from "../router";

export const PERIODS = [1, 7, 14, 30] as const;
export const DEFAULT_DAYS = 7;

/** Empty: all clusters. */
export const cluster = computed(() => route.value.query["cluster"] ?? "");

export const days = computed(() => {
  const chosen = Number(route.value.query["days"]);
  return PERIODS.find((each) => each === chosen) ?? DEFAULT_DAYS;
});

export function chooseCluster(name: string): void {
  changeQuery({ cluster: name });
}

export function chooseDays(count: number): void {
  changeQuery({ days: count === DEFAULT_DAYS ? "" : count });
}
