/** Waste first: a sentence, a bar that adds up, then where, who and when. */
import type { Answer } from "../../api/client";
import { useResource } from "../../api/resources";
import { DataState } from "../../components/panel";
import { cluster, days } from "../../state/filters";
import { language } from "../../i18n";
import { DayPanel } from "./day-panel";
import { Funnel } from "./funnel";
import { Headline } from "./headline";
import { MapPanel } from "./map-panel";
import { TopPanel } from "./top-panel";
import { WastePanel } from "./waste-panel";
import "./overview.css";

export type OverviewData = Answer<"/api/v1/overview">;

export default function Overview() {
  const overview = useResource("/api/v1/overview", { cluster: cluster.value, days: days.value, language: language.value });
  return (
    <div class="page overview">
      <div class="overview-head">
        <DataState resource={overview} lines={2}>{(data) => <><Headline data={data} /><Funnel data={data} /></>}</DataState>
      </div>
      <div class="overview-grid">
        <MapPanel />
        <TopPanel overview={overview} />
        <DayPanel overview={overview} />
        <WastePanel overview={overview} />
      </div>
    </div>
  );
}
