/** Releases that would have been regretted, with their workloads; and those that would have saved the most. */
import type { ResourceView } from "../../api/resources";
import { AmountLine } from "../../components/bar";
import { DataState, PanelHead } from "../../components/panel";
import { Time } from "../../components/time";
import { WorkloadLink } from "../../components/workload-link";
import { fmt } from "../../i18n";
import type { Release, Replay } from "./frontier";
import { texts } from "./texts";

const SHOWN = 8;

export function ReleasesPanel({ replay, tried }: { replay: ResourceView<Replay>; tried: Replay | undefined }) {
  return (
    <section class="panel releases-panel">
      <PanelHead title={texts(tried ? "regretted-of" : "regretted")} />
      <DataState resource={replay} lines={3} isEmpty={(data) => (tried ?? data).regretted.length === 0} empty={texts("regretted-none")}>
        {(data) => <Regretted items={(tried ?? data).regretted} />}
      </DataState>
      <h2 class="releases-title">{texts("releases")}</h2>
      <DataState resource={replay} lines={6} isEmpty={(data) => (tried ?? data).releases.length === 0} empty={texts("releases-none")}>
        {(data) => <Largest releases={(tried ?? data).releases} currency={data.currency} />}
      </DataState>
    </section>
  );
}

const keyOf = (each: Release) => `${each.cluster}/${each.namespace}/${each.kind}/${each.name}/${each.at}`;
const lineOf = (each: Release) => texts("release-line", { gpus: fmt.gpus(each.gpus), n: each.gpus, policy: each.policy });

function Regretted({ items }: { items: readonly Release[] }) {
  return (
    <div class="regretted-scroll" tabIndex={0} role="region" aria-label={texts("regretted")}>
      <table class="rows releases-table">
        <tbody>
          {items.map((each) => (
            <tr key={keyOf(each)}>
              <td class="release-name"><WorkloadLink of={each} /><small>{lineOf(each)}</small></td>
              <td class="number">{each.at && <Time at={each.at} />}<small class="block">{texts("regretted-back", { duration: fmt.duration(each.minutes * 60) })}</small></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Largest({ releases, currency }: { releases: readonly Release[]; currency: string }) {
  const amountOf = (each: Release) => (currency ? each.cost : each.gpu_hours) ?? 0;
  const items = [...releases].sort((a, b) => amountOf(b) - amountOf(a)).slice(0, SHOWN);
  const most = Math.max(...items.map(amountOf), 1e-9);
  return (
    <table class="rows releases-table">
      <thead>
        <tr>
          <th scope="col">{texts("col-workload")}</th>
          <th scope="col" class="number">{texts("col-at")}</th>
          <th scope="col" class="number">{currency ? texts("col-saved", { currency }) : texts("col-saved-hours")}</th>
        </tr>
      </thead>
      <tbody>
        {items.map((each) => (
          <tr key={keyOf(each)}>
            <td class="release-name"><WorkloadLink of={each} /><small>{lineOf(each)}</small></td>
            <td class="number secondary">{each.at && <Time at={each.at} style="day" />}</td>
            <td class="number release-saved"><strong>{fmt.number(amountOf(each))}</strong><AmountLine ratio={amountOf(each) / most} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
