/** How many GPUs of which model nobody will need for some time, how sure that is, and whose they are. */
import { useResource } from "../../api/resources";
import { Panel } from "../../components/panel";
import { WorkloadLink } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { groupByModel, HORIZONS, type LendableRow, type ModelRow, sumGpus } from "./lendable";
import { texts } from "./texts";

const SHOWN_SOURCES = 20;

export function LendablePanel() {
  const page = useResource("/api/v1/lendable", { limit: SHOWN_SOURCES });
  return (
    <Panel
      class="lendable-panel"
      title={<>{texts("lendable")} <small class="secondary">{texts("lendable-hint")}</small></>}
      resource={page}
      lines={6}
      isEmpty={(data) => data.items.length === 0}
      empty={texts("lendable-empty")}
    >
      {(data) => (
        <>
          <dl class="lendable-sums">
            {HORIZONS.map((each) => (
              <div key={each}>
                <dt>{texts(`lend-${each}`)}</dt>
                <dd>{fmt.gpus(sumGpus(data.items, each))} <small>GPU</small></dd>
              </div>
            ))}
          </dl>
          <table class="rows lendable-table">
            <thead>
              <tr>
                <th scope="col">{texts("lend-model")}</th>
                {HORIZONS.map((each) => <th key={each} scope="col" class="number">{texts(`lend-${each}`)}</th>)}
              </tr>
            </thead>
            <tbody>{groupByModel(data.items).map((row) => <ModelRows key={row.model} row={row} />)}</tbody>
          </table>
        </>
      )}
    </Panel>
  );
}

function ModelRows({ row }: { row: ModelRow }) {
  const sources = row.cells["1h"]?.workloads ?? [];
  return (
    <tr>
      <td>
        <strong>{fmt.model(row.model)}</strong>
        {sources.length > 0 && (
          <details class="lendable-sources">
            <summary>{texts("lend-sources")}</summary>
            <ul>
              {sources.map((each) => (
                <li key={`${each.cluster}/${each.namespace}/${each.kind}/${each.name}`}>
                  <WorkloadLink of={each} />
                  <small>
                    {fmt.gpus(each.gpus)} GPU
                    {each.probability !== null && ` · ${texts("lend-probability", { percent: fmt.percent(each.probability, 0) })}`}
                    {each.of && ` · ${texts("lend-spells", { n: each.spells, of: texts(`of-${each.of}`) })}`}
                  </small>
                </li>
              ))}
            </ul>
          </details>
        )}
      </td>
      {HORIZONS.map((each) => <Cell key={each} of={row.cells[each]} />)}
    </tr>
  );
}

function Cell({ of: cell }: { of: LendableRow | undefined }) {
  if (!cell) return <td class="number">–</td>;
  const hint = [texts("lend-expected", { gpus: fmt.gpus(cell.expected_gpus) }), cell.unknown_gpus > 0.005 && texts("lend-unknown", { gpus: fmt.gpus(cell.unknown_gpus) })].filter(Boolean).join(", ");
  return (
    <td class="number" title={hint}>
      <strong>{fmt.gpus(cell.gpus)}</strong>
      <small class="block secondary">{cell.probability === null ? "–" : fmt.percent(cell.probability, 0)}</small>
    </td>
  );
}
