/** Beside the list while no node is chosen: where GPUs are free, by model. */
import type { ResourceView } from "../../api/resources";
import { Panel } from "../../components/panel";
import { fmt } from "../../i18n";
import { changeQuery } from "../../router";
import { type NodeList, sumModels } from "./fleet";
import { texts } from "./texts";

export function ModelPanel({ nodes }: { nodes: ResourceView<NodeList> }) {
  return (
    <Panel class="nodes-detail" title={texts("models")} resource={nodes} lines={8} isEmpty={(data) => data.items.length === 0} empty={texts("empty")}>
      {(data) => (
        <table class="rows">
          <thead>
            <tr>
              <th>{texts("model")}</th>
              <th class="number">{texts("nodes")}</th>
              <th class="number">{texts("gpus")}</th>
              <th class="number">{texts("idle")}</th>
              <th class="number">{texts("free")}</th>
            </tr>
          </thead>
          <tbody>
            {sumModels(data.items).map((each) => (
              <tr key={each.model}>
                <td>
                  <button type="button" class="link-button" onClick={() => changeQuery({ q: each.model })}>{each.model || "–"}</button>
                </td>
                <td class="number">{fmt.number(each.nodes)}</td>
                <td class="number">{each.gpus === null ? "–" : fmt.number(each.gpus)}</td>
                <td class="number">{fmt.number(each.idle, 1)}</td>
                <td class="number">{each.free === null ? "–" : each.free > 0 ? <strong>{fmt.number(each.free)}</strong> : <span class="secondary">0</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
