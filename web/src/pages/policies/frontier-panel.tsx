/** The slider of windows, and what each would have saved and regretted beside the present policies. */
import { useState } from "preact/hooks";
import type { ResourceView } from "../../api/resources";
import { Panel } from "../../components/panel";
import { fmt } from "../../i18n";
import { FrontierChart, windowText } from "./chart";
import { compare, findBest, type Replay, type Totals } from "./frontier";
import { texts } from "./texts";

export function FrontierPanel({ replay, tried }: { replay: ResourceView<Replay>; tried: Totals | undefined }) {
  return (
    <Panel
      title={texts("frontier")}
      aside={<Legend hasTried={!!tried} />}
      resource={replay}
      lines={10}
      isEmpty={(data) => data.frontier.every((each) => each.releases === 0)}
      empty={texts("frontier-empty")}
    >
      {(data) => <Content data={data} tried={tried} />}
    </Panel>
  );
}

function Legend({ hasTried }: { hasTried: boolean }) {
  return (
    <span class="frontier-legend">
      <span><i class="key key-dot" aria-hidden="true" />{texts("frontier-hint")}</span>
      <span><i class="key key-present" aria-hidden="true" />{texts("present")}</span>
      {hasTried && <span><i class="key key-tried" aria-hidden="true" />{texts("tried")}</span>}
    </span>
  );
}

function Content({ data, tried }: { data: Replay; tried: Totals | undefined }) {
  const [asked, choose] = useState<number | null>(null);
  const { frontier, policy, currency } = data;
  const chosen = Math.min(asked ?? findBest(frontier), frontier.length - 1);
  const one = frontier[chosen]!;
  return (
    <>
      <FrontierChart points={frontier} chosen={chosen} onChoose={choose} present={policy} tried={tried} />
      <label class="slider">
        <span>{texts("window")} <output>{windowText(one)}</output></span>
        <input
          type="range"
          min={0}
          max={frontier.length - 1}
          step={1}
          value={chosen}
          aria-valuetext={windowText(one)}
          onInput={(event) => choose(Number(event.currentTarget.value))}
        />
        <small aria-live="polite">{describe(one, policy)}</small>
      </label>
      <div class="table-scroll">
        <table class="rows compare-table">
          <thead>
            <tr>
              <th scope="col" />
              <th scope="col" class="number">{texts("col-hours")}</th>
              {currency && <th scope="col" class="number">{texts("col-cost", { currency })}</th>}
              <th scope="col" class="number compare-releases">{texts("col-releases")}</th>
              <th scope="col" class="number">{texts("col-regret")}</th>
              <th scope="col" class="number compare-share">{texts("col-share")}</th>
            </tr>
          </thead>
          <tbody>
            <TotalsRow name={texts("chosen", { duration: windowText(one) })} of={one} hasCost={!!currency} mark="key-chosen" />
            <TotalsRow name={texts("present")} of={policy} hasCost={!!currency} mark="key-present" />
            {tried && <TotalsRow name={texts("tried")} of={tried} hasCost={!!currency} mark="key-tried" />}
            {data.compared.filter((each) => each.window_minutes !== null).map((each) => (
              <TotalsRow key={each.name} name={texts("fixed", { duration: windowText(each) })} of={each} hasCost={!!currency} mark="" />
            ))}
          </tbody>
        </table>
      </div>
      {data.notes.map((note) => <p key={note} class="secondary small replay-note">{note}</p>)}
    </>
  );
}

function TotalsRow({ name, of: totals, hasCost, mark }: { name: string; of: Totals; hasCost: boolean; mark: string }) {
  return (
    <tr class={mark ? "" : "compare-fixed"}>
      <th scope="row"><i class={`key ${mark}`} aria-hidden="true" />{name}</th>
      <td class="number">{fmt.number(totals.gpu_hours)}</td>
      {hasCost && <td class="number">{totals.cost === null ? "–" : fmt.number(totals.cost)}</td>}
      <td class="number compare-releases">{fmt.number(totals.releases)}</td>
      <td class="number">{totals.regret === null ? "–" : fmt.percent(totals.regret)}</td>
      <td class="number compare-share">{totals.oracle_share === null ? "–" : fmt.percent(totals.oracle_share)}</td>
    </tr>
  );
}

/** In words, against the present policies. */
function describe(one: Totals, present: Totals): string {
  const { hours, regret } = compare(one, present);
  const saving = Math.abs(hours) < 0.5 ? texts("same") : texts(hours > 0 ? "more" : "less", { hours: fmt.number(Math.abs(hours)) });
  const points = fmt.number(Math.abs(regret) * 100, 1);
  const change = Math.abs(regret) < 0.0005 ? texts("regret-same") : texts(regret > 0 ? "regret-more" : "regret-less", { points });
  return `${saving}, ${change}`;
}
