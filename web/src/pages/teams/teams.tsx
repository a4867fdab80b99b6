/** Who uses GPUs and what it costs: by namespace, team, user or label, in any period. */
import { useMemo } from "preact/hooks";
import { useResource } from "../../api/resources";
import { DataState } from "../../components/panel";
import { Segments } from "../../components/segments";
import { changeQuery, route } from "../../router";
import { cluster, days } from "../../state/filters";
import { hasLedger } from "../../state/session";
import { Downloads } from "./downloads";
import { GroupPanel, TimePanel } from "./group-panel";
import { GroupTable } from "./group-table";
import { joinRows } from "./groups";
import { Headline } from "./headline";
import { formatDate, readPeriod } from "./period";
import { PeriodMenu } from "./period-menu";
import { groupingName } from "./names";
import { texts } from "./texts";
import "../../styles/tables.css";
import "./teams.css";

const DEFAULT_GROUPINGS = ["namespace", "user"];

export default function Teams() {
  const { query } = route.value;
  const today = formatDate(new Date());
  const period = useMemo(() => readPeriod(query, days.value, new Date()), [query, days.value, today]);
  const by = query["by"] ?? "namespace";
  const parameters = { since: period.since, until: period.until, by, cluster: cluster.value };
  const isOn = hasLedger.value;
  const report = useResource(isOn ? "/api/v1/reports" : null, { ...parameters, format: "json", top: 10 });
  const details = useResource(isOn ? "/api/v1/reports/groups" : null, { ...parameters, top: 8, rows: 200 });
  const groupings = details.data?.groupings ?? DEFAULT_GROUPINGS;
  if (isOn === false) return <div class="page teams"><h1>{texts("no-ledger")}</h1><p class="teams-sub">{texts("no-ledger-hint")}</p></div>;
  return (
    <div class="page teams">
      <div class="teams-head">
        <DataState resource={report} lines={2}>
          {(data) => <Headline report={data} period={period} by={by} />}
        </DataState>
        <div class="teams-tools">
          <Segments
            label={texts("by")}
            value={by}
            choices={groupings.map((value) => ({ value, text: groupingName(value) }))}
            onChoose={(value) => changeQuery({ by: value === "namespace" ? "" : value, group: "", sort: "" })}
          />
          <PeriodMenu period={period} />
          <Downloads parameters={parameters} />
        </div>
      </div>
      <div class="teams-grid">
        <div class="teams-left">
          <section class="panel">
            <DataState resource={report} lines={8} isEmpty={(data) => data.groups.length === 0} empty={texts("empty")}>
              {(data) => <GroupTable report={data} rows={joinRows(data, details.data)} details={details.data} by={by} />}
            </DataState>
          </section>
          <TimePanel report={report} details={details} by={by} />
        </div>
        <GroupPanel report={report} details={details} by={by} />
      </div>
    </div>
  );
}
