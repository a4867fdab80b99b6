import type { Resource } from "../../api/resources";
import { StackedBar } from "../../components/bar";
import { Panel } from "../../components/panel";
import { fmt } from "../../i18n";
import { findPage } from "../../pages";
import { linkTo } from "../../router";
import { hasLedger } from "../../state/session";
import type { OverviewData } from "./overview";
import { texts } from "./texts";

const SHOWN = 8;

export function WastePanel({ overview }: { overview: Resource<OverviewData> }) {
  const hasTeams = !!overview.data?.teams.length;
  return (
    <Panel
      title={texts(hasTeams ? "waste-team" : "waste")}
      aside={findPage("teams") && hasLedger.value !== false && <a href={linkTo("teams")}>{texts("report")}</a>}
      resource={overview}
      lines={6}
      isEmpty={(data) => data.namespaces.length === 0}
      empty={texts(hasLedger.value === false ? "no-ledger" : "waste-empty")}
    >
      {(data) => <WasteTable data={data} hasTeams={hasTeams} />}
    </Panel>
  );
}

function WasteTable({ data, hasTeams }: { data: OverviewData; hasTeams: boolean }) {
  const groups = (hasTeams ? data.teams : data.namespaces).slice(0, SHOWN);
  const isPriced = groups.some((group) => group.idle_cost_micros !== null);
  return (
    <table class="rows waste-table">
      <thead>
        <tr>
          <th scope="col">{texts(hasTeams ? "team" : "namespace")}</th>
          <th scope="col" class="waste-bar"><span class="visually-hidden">{texts("idle")}</span></th>
          <th scope="col" class="number">{texts("idle")}</th>
          <th scope="col" class="number">{isPriced ? texts("cost-idle", { currency: data.currency }) : texts("idle-hours")}</th>
        </tr>
      </thead>
      <tbody>
        {groups.map((group) => (
          <WasteRow key={`${group.cluster}/${group.name}`} group={group} hasTeams={hasTeams} isPriced={isPriced} />
        ))}
      </tbody>
    </table>
  );
}

function WasteRow({ group, hasTeams, isPriced }: { group: OverviewData["namespaces"][number]; hasTeams: boolean; isPriced: boolean }) {
  const { allocated_gpu_hours: allocated, idle_gpu_hours: idle } = group;
  const ratio = allocated ? idle / allocated : 0;
  const name = group.cluster ? `${group.cluster} / ${group.name}` : group.name;
  const label = name || texts("no-team");
  return (
    <tr>
      <td class="waste-name">
        {hasTeams ? label : <a class="plain-link" href={linkTo("workloads", [], { q: `namespace:${group.name}` })}>{label}</a>}
      </td>
      <td class="waste-bar">
        <StackedBar label={`${fmt.percent(ratio)}`} parts={[{ kind: "active", value: Math.max(0, allocated - idle) }, { kind: "idle", value: idle }]} />
      </td>
      <td class="number secondary">{fmt.percent(ratio, 0)}</td>
      <td class="number">{!isPriced ? fmt.number(idle) : group.idle_cost_micros === null ? "–" : fmt.wholeAmount(group.idle_cost_micros)}</td>
    </tr>
  );
}
