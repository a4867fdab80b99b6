/** The settings in effect and where each comes from. Secrets are masked by the API. */
import type { Answer } from "../../api/client";
import { useResource } from "../../api/resources";
import { DataState } from "../../components/panel";
import { changeQuery, route } from "../../router";
import { SearchBox } from "./search-box";
import { texts } from "./texts";

type Setting = Answer<"/api/v1/settings">["items"][number];

export function SettingsTab() {
  const settings = useResource("/api/v1/settings", {}, { live: false });
  const { q = "", changed } = route.value.query;
  return (
    <section class="panel">
      <div class="list-tools">
        <SearchBox label={texts("search-settings")} />
        <label class="check">
          <input type="checkbox" checked={changed === "1"} onChange={(event) => changeQuery({ changed: event.currentTarget.checked ? "1" : "" }, { replace: true })} />
          {texts("only-changed")}
        </label>
        <span class="secondary small settings-note">{texts("settings-note")}</span>
      </div>
      <DataState resource={settings} lines={12}>{(data) => <SettingTable items={find(data.items, q, changed === "1")} />}</DataState>
    </section>
  );
}

const isChanged = (setting: Setting) => setting.source !== "default";

function find(items: readonly Setting[], words: string, onlyChanged: boolean): readonly Setting[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return items.filter((each) => {
    const text = `${each.path} ${each.about} ${show(each.value)} ${each.origin}`.toLowerCase();
    return (!onlyChanged || isChanged(each)) && wanted.every((word) => text.includes(word));
  });
}

function show(value: unknown): string {
  if (value === null || value === undefined || value === "") return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function groupBySection(items: readonly Setting[]): ReadonlyMap<string, readonly Setting[]> {
  const sections = new Map<string, Setting[]>();
  for (const each of items) {
    const section = each.path.split(".")[0]!;
    sections.set(section, [...(sections.get(section) ?? []), each]);
  }
  return sections;
}

function SettingTable({ items }: { items: readonly Setting[] }) {
  if (items.length === 0) return <p class="state state-empty">{texts("no-settings")}</p>;
  const sections = groupBySection(items);
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={texts("tab-settings")}>
      <table class="rows settings-table">
        <thead>
          <tr>
            <th>{texts("setting")}</th>
            <th>{texts("value")}</th>
            <th>{texts("set-by")}</th>
          </tr>
        </thead>
        {[...sections].map(([section, rows]) => (
          <tbody key={section}>
            <tr class="setting-section"><th colSpan={3} scope="rowgroup">{section}</th></tr>
            {rows.map((each) => <SettingRow key={each.path} setting={each} />)}
          </tbody>
        ))}
      </table>
    </div>
  );
}

function SettingRow({ setting }: { setting: Setting }) {
  const value = show(setting.value);
  return (
    <tr>
      <td class="setting-name">
        <code>{setting.path}</code>
        <small>{setting.about}</small>
      </td>
      <td class="setting-value">{value ? <code>{value}</code> : <span class="secondary">{texts("empty")}</span>}</td>
      <td class={isChanged(setting) ? "setting-origin setting-changed" : "setting-origin"}>{isChanged(setting) ? setting.origin : texts("origin-default")}</td>
    </tr>
  );
}
