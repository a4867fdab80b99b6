/** How a workload is named and linked everywhere: namespace/Kind/name, after its cluster where several are shown. */
import { linkTo, type Query } from "../router";
import { showsClusters } from "../state/filters";

export interface WorkloadKey {
  readonly cluster: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** What has no name is `-` in addresses: a cluster that the series do not name, the namespace of a host process. */
const NO_NAME = "-";

export function workloadPath(key: WorkloadKey): readonly string[] {
  return [key.cluster, key.kind, key.namespace, key.name].map((part) => part || NO_NAME);
}

/** The parameters of the API's paths below /api/v1/workloads/. */
export function workloadParameters(key: WorkloadKey): Record<string, string> {
  const [, kind, namespace, name] = workloadPath(key);
  return { cluster: key.cluster, kind: kind!, namespace: namespace!, name: name! };
}

export function workloadLink(key: WorkloadKey, query: Query = {}): string {
  return linkTo("workloads", workloadPath(key), query);
}

/** The workload of an address; null if it names none. Notices of earlier versions have the cluster as a parameter. */
export function readWorkloadPath(path: readonly string[], parameter = ""): WorkloadKey | null {
  const parts = path.map((part) => (part === NO_NAME ? "" : part));
  const [cluster = "", kind = "", namespace = "", name = ""] = parts.length === 3 ? [parameter, ...parts] : parts;
  return parts.length < 3 ? null : { cluster, kind, namespace, name };
}

export function WorkloadName({ of: key, short = false }: { of: WorkloadKey; short?: boolean }) {
  return (
    <span class="workload-name" title={[key.cluster, key.namespace, key.kind, key.name].filter(Boolean).join("/")}>
      <span class="secondary">{showsClusters.value && key.cluster && `${key.cluster}/`}{key.namespace}/</span>
      {!short && <span class="workload-kind">{key.kind}/</span>}
      {key.name}
    </span>
  );
}

export function WorkloadLink({ of: key, query = {} }: { of: WorkloadKey; query?: Query }) {
  return (
    <a class="workload-link" href={workloadLink(key, query)}>
      <WorkloadName of={key} />
    </a>
  );
}
