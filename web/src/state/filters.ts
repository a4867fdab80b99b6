/** The cluster and the period of the whole page. They live in the address, so that a link shows the same. */
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { useResource } from "../api/resources";
import { changeQuery, route } from "../router";

export const PERIODS = [1, 7, 14, 30] as const;
export const DEFAULT_DAYS = 7;

/** Empty: all clusters. */
export const cluster = computed(() => route.value.query["cluster"] ?? "");

const clusterNames = signal<readonly string[]>([]);

/** The clusters that the analyzer has; read again with every result. */
export function useClusters(): readonly string[] {
  const { data } = useResource("/api/v1/health");
  const names = data?.clusters.filter(Boolean).join("\n");
  useEffect(() => {
    if (names !== undefined) clusterNames.value = names ? names.split("\n") : [];
  }, [names]);
  return clusterNames.value;
}

/** Whether a name needs its cluster: several are shown. */
export const showsClusters = computed(() => clusterNames.value.length > 1 && !cluster.value);

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
