/** The exporters that the analyzer scrapes itself: failing ones first. */
import type { ResourceView } from "../../api/resources";
import { Badge } from "../../components/badge";
import { DataState } from "../../components/panel";
import { Since } from "../../components/time";
import { fmt } from "../../i18n";
import { changeQuery, route } from "../../router";
import { SearchBox } from "./search-box";
import { findTargets, readSources, type Target } from "./source-data";
import { texts } from "./texts";

const MOST_ROWS = 200;

export function Targets({ described }: { described: ResourceView<unknown> }) {
  const { q = "", failing } = route.value.query;
  return (
    <section class="panel">
      <div class="list-tools">
        <SearchBox label={texts("search-targets")} />
        <label class="check">
          <input type="checkbox" checked={failing === "1"} onChange={(event) => changeQuery({ failing: event.currentTarget.checked ? "1" : "" }, { replace: true })} />
          {texts("only-failing")}
        </label>
      </div>
      <DataState resource={described} lines={8}>
        {(data) => {
          const sources = readSources(data);
          if (!sources.some((each) => each.isScraper)) return <p class="state">{texts("engine-targets")}</p>;
          const found = findTargets(sources.flatMap((each) => each.targets), q, failing === "1");
          return <TargetTable targets={found} />;
        }}
      </DataState>
    </section>
  );
}

function TargetTable({ targets }: { targets: readonly Target[] }) {
  if (targets.length === 0) return <p class="state state-empty">{texts("no-targets")}</p>;
  const hidden = targets.length - MOST_ROWS;
  return (
    <>
      <div class="table-scroll" tabIndex={0} role="region" aria-label={texts("tab-targets")}>
        <table class="rows">
          <thead>
            <tr>
              <th>{texts("target")}</th>
              <th>{texts("state")}</th>
              <th class="number">{texts("scraped")}</th>
              <th class="number">{texts("took")}</th>
              <th class="number">{texts("size")}</th>
              <th class="number">{texts("series")}</th>
            </tr>
          </thead>
          <tbody>{targets.slice(0, MOST_ROWS).map((each) => <TargetRow key={each.target} target={each} />)}</tbody>
        </table>
      </div>
      {hidden > 0 && <p class="state">{texts("more", { n: fmt.number(hidden) })}</p>}
    </>
  );
}

function TargetRow({ target }: { target: Target }) {
  return (
    <tr>
      <td class="target-name">
        {target.target}
        {target.error && <small class="fault-text">{target.error}</small>}
      </td>
      <td class="nowrap">
        <Badge tone={target.error ? "fault" : "good"}>{texts(target.error ? "fails" : "responds")}</Badge>
        {target.failures_in_a_row > 1 && <small class="secondary"> {texts("failed-times", { n: target.failures_in_a_row })}</small>}
      </td>
      <td class="number">{target.scraped_at ? <Since at={target.scraped_at * 1000} /> : texts("never")}</td>
      <td class="number">{target.seconds === null ? "–" : `${fmt.number(target.seconds * 1000)} ms`}</td>
      <td class="number">{target.page_bytes === null ? "–" : fmt.bytes(target.page_bytes)}</td>
      <td class="number">{target.series === null ? "–" : fmt.number(target.series)}</td>
    </tr>
  );
}
