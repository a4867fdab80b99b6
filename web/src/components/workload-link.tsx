/** How a workload is named and linked everywhere: namespace/Kind/name, opening beside the list. */
import { linkTo, type Query } from "../router";

export interface WorkloadKey {
  readonly cluster: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** The cluster without a name is `-` in the address. */
const NO_CLUSTER = "-";

export function workloadPath(key: WorkloadKey): readonly string[] {
  return [key.cluster || NO_CLUSTER, key.kind, key.namespace, key.name];
}

export function workloadLink(key: WorkloadKey, query: Query = {}): string {
  return linkTo("workloads", workloadPath(key), query);
}

/** The workload of an address; null if it names none. */
export function readWorkloadPath(path: readonly string[]): WorkloadKey | null {
  const [cluster, kind, namespace, name] = path;
  if (!cluster || !kind || !namespace || !name) return null;
  return { cluster: cluster === NO_CLUSTER ? "" : cluster, kind, namespace, name };
}

export function WorkloadName({ of: key, short = false }: { of: WorkloadKey; short?: boolean }) {
  return (
    <span class="workload-name" title={`${key.namespace}/${key.kind}/${key.name}`}>
      <span class="secondary">{key.namespace}/</span>
      {short ? key.name : `${key.kind}/${key.name}`}
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
