import { useResource } from "../../../api/resources";
import { wordOf } from "../../../components/badge";
import { WorkloadLink, type WorkloadKey } from "../../../components/workload-link";
import { fmt } from "../../../i18n";
import { cluster } from "../../../state/filters";
import { texts } from "../texts";
import type { DetailData } from "./detail";
import { Section } from "./local-text";

type Allocation = DetailData["allocations"][number]["allocation"];

/** Each GPU of the workload, and who else is on it. */
export function Gpus({ data }: { data: DetailData }) {
  const rows = data.allocations.map((one) => one.allocation);
  const isShared = rows.some((one) => one.share !== "exclusive");
  const holders = useHolders(isShared, rows);
  const more = data.allocations_total - rows.length;
  return (
    <Section title={texts("gpus")}>
      <div class="scroll-x">
        <table class="rows detail-table">
          <thead>
            <tr>
              <th scope="col">{texts("gpu-index")}</th>
              <th scope="col">{texts("gpu-verdict")}</th>
              <th scope="col" class="number">{texts("gpu-core")}</th>
              <th scope="col" class="number">{texts("gpu-memory")}</th>
              <th scope="col" class="number">{texts("gpu-power")}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((one) => <GpuRow key={one.id} of={one} others={holders.get(one.gpu) ?? []} />)}
          </tbody>
        </table>
      </div>
      {more > 0 && <p class="secondary small">{texts("gpu-more", { n: more })}</p>}
    </Section>
  );
}

function GpuRow({ of: one, others }: { of: Allocation; others: readonly WorkloadKey[] }) {
  const share = one.gpu_fraction < 0.995 ? `${fmt.percent(one.gpu_fraction, 0)} · ` : "";
  return (
    <>
      <tr>
        <td>{one.node} · {one.index}<small>{share}{fmt.model(one.model)}{one.share === "exclusive" ? "" : ` · ${one.share}`}</small></td>
        <td>{wordOf("verdict", one.verdict)}{one.used_by && <small>{texts("used-by", { pod: one.used_by })}</small>}</td>
        <td class="number">{one.core_peak_ratio === null ? "–" : fmt.percent(one.core_peak_ratio)}</td>
        <td class="number">
          {one.memory_used_bytes === null ? "–" : fmt.bytes(one.memory_used_bytes)}
          {one.memory_total_bytes !== null && <small>/ {fmt.bytes(one.memory_total_bytes)}</small>}
        </td>
        <td class="number">{one.power_watts === null ? "–" : `${fmt.number(one.power_watts)}\u00a0W`}</td>
      </tr>
      {others.length > 0 && (
        <tr class="detail-sub">
          <td colSpan={5}>
            <span class="secondary">{texts("shared-with")} </span>
            {others.map((other) => <WorkloadLink key={`${other.namespace}/${other.kind}/${other.name}`} of={other} />)}
          </td>
        </tr>
      )}
    </>
  );
}

/** The other workloads on each GPU, from the map of all GPUs. */
function useHolders(isWanted: boolean, rows: readonly Allocation[]): ReadonlyMap<string, readonly WorkloadKey[]> {
  const { data } = useResource(isWanted ? "/api/v1/gpu-map" : null, { cluster: cluster.value });
  const found = new Map<string, readonly WorkloadKey[]>();
  if (!data) return found;
  const { workloads } = data;
  for (const one of rows) {
    const gpu = data.gpus.uuid.indexOf(one.gpu);
    const numbers = new Set((data.gpus.parts[gpu] ?? []).map((part) => part[3]));
    const keys = [...numbers].map((number) => ({
      cluster: data.clusters[workloads.cluster[number]!] ?? "",
      kind: workloads.kind[number]!,
      namespace: data.namespaces[workloads.namespace[number]!] ?? "",
      name: workloads.name[number]!,
    }));
    const own = one.workload;
    found.set(one.gpu, keys.filter((key) => key.name !== own.name || key.namespace !== own.namespace || key.kind !== own.kind));
  }
  return found;
}
