import { useResource } from "../../../api/resources";
import { DataState } from "../../../components/panel";
import { type WorkloadKey, workloadParameters } from "../../../components/workload-link";
import { fmt } from "../../../i18n";
import { texts } from "../texts";
import { Section } from "./local-text";

export function Processes({ of: key }: { of: WorkloadKey }) {
  const processes = useResource("/api/v1/workloads/{kind}/{namespace}/{name}/processes", workloadParameters(key));
  return (
    <Section title={texts("processes")}>
      <DataState
        resource={processes}
        lines={2}
        isEmpty={(data) => data.processes.length === 0}
        empty={texts(processes.data?.untold.length ? "processes-unknown" : "processes-empty")}
      >
        {(data) => (
          <div class="scroll-x">
            <table class="rows detail-table">
              <thead>
                <tr>
                  <th scope="col">{texts("gpu-index")}</th>
                  <th scope="col">{texts("pid")}</th>
                  <th scope="col" class="wide">{texts("process")}</th>
                  <th scope="col" class="number">{texts("memory")}</th>
                  <th scope="col" class="number">{texts("sm")}</th>
                </tr>
              </thead>
              <tbody>
                {data.processes.map((one) => (
                  <tr key={`${one.node}/${one.gpu}/${one.pid}`}>
                    <td>{one.index}</td>
                    <td>{one.pid}</td>
                    <td class="wide" title={`${one.pod}/${one.container}`}>{one.process}{one.outside_allocation && <small>{texts("outside")}</small>}{one.works_for && <small>{texts("used-by", { pod: one.pod })}</small>}</td>
                    <td class="number">{one.memory_bytes === null ? "–" : fmt.bytes(one.memory_bytes)}</td>
                    <td class="number">{one.sm_ratio === null ? "–" : fmt.percent(one.sm_ratio)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </DataState>
    </Section>
  );
}
