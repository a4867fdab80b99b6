/** Where the data comes from, how complete it is, what is sent to whom, and which settings are in effect. */
import { useResource } from "../../api/resources";
import { DataState } from "../../components/panel";
import { Segments } from "../../components/segments";
import { fmt } from "../../i18n";
import { changeQuery, route } from "../../router";
import { DataTab } from "./data-tab";
import { Deliveries } from "./deliveries";
import { SettingsTab } from "./settings-tab";
import { type Health, readSources, type Source } from "./source-data";
import { Targets } from "./targets";
import { texts } from "./texts";
import "../../styles/tables.css";
import "./sources.css";

const TABS = ["data", "targets", "deliveries", "settings"] as const;
type Tab = (typeof TABS)[number];

export default function Sources() {
  const tab: Tab = TABS.find((each) => each === route.value.query["tab"]) ?? "data";
  const health = useResource("/api/v1/health");
  const described = useResource("/api/v1/sources");
  return (
    <div class="page sources">
      <div class="sources-head">
        <DataState resource={health} lines={2}>
          {(data) => <Headline health={data} sources={described.data ? readSources(described.data) : []} />}
        </DataState>
        <Segments
          label={texts("tabs")}
          value={tab}
          choices={TABS.map((value) => ({ value, text: texts(`tab-${value}`) }))}
          onChoose={(value) => changeQuery({ tab: value === "data" ? "" : value, q: "" })}
        />
      </div>
      {tab === "data" && <DataTab health={health} described={described} />}
      {tab === "targets" && <Targets described={described} />}
      {tab === "deliveries" && <Deliveries health={health} />}
      {tab === "settings" && <SettingsTab />}
    </div>
  );
}

function Headline({ health, sources }: { health: Health; sources: readonly Source[] }) {
  const { result, cycles } = health;
  const coverage = health.measured_coverage ?? health.coverage;
  return (
    <div>
      <h1>{sentence(health, sources)}</h1>
      <p class="sources-sub">
        {result
          ? texts("sub", { age: fmt.duration(result.age_seconds), interval: fmt.duration(cycles.interval_seconds), coverage: coverage === null ? "–" : fmt.percent(coverage) })
          : texts("sub-new")}
      </p>
    </div>
  );
}

function sentence(health: Health, sources: readonly Source[]) {
  if (health.targets) {
    const up = health.targets_up ?? 0;
    const shown = up < health.targets ? <em class="fault-number">{fmt.number(up)}</em> : fmt.number(up);
    return texts.rich("headline-targets", { up: shown, n: health.targets });
  }
  if (sources.length > 1) return texts("headline-engines", { n: sources.length });
  const [source] = sources;
  if (!source?.engine) return texts("headline-none");
  return texts("headline-engine", { engine: `${source.engine} ${source.version}`.trim() });
}
