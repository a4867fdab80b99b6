/** What reclaim will do, did, refused and put back. */
import { useMemo } from "preact/hooks";
import { type ResourceView, useResource } from "../../api/resources";
import { DataState } from "../../components/panel";
import { Segments } from "../../components/segments";
import { language } from "../../i18n";
import { changeQuery, route } from "../../router";
import { cluster, days } from "../../state/filters";
import type { Action, Plan, Savings } from "../../reclaim/types";
import { makeRows, type Row } from "../workloads/rows";
import { type Entry, listActions, listDecisions, OUTCOMES, type Part, PARTS, STATES } from "./entries";
import { EntryPanel } from "./entry-panel";
import { countPlanned, FirstSteps, Headline } from "./headline";
import { ActionTable, DecisionTable } from "./list";
import { texts } from "./texts";
import "../../styles/tables.css";
import "../workloads/detail/detail.css";
import "../../reclaim/reclaim.css";
import "./actions.css";

const MOST_ROWS = 100;

export default function Actions() {
  const status = useResource("/api/v1/reclaim");
  const suspended = Number(status.data?.details["suspended"] ?? 0);
  // In mode off there is no plan: what is still suspended is what there is to see.
  const first = status.data?.mode === "off" && suspended ? "done" : "planned";
  const part = PARTS.find((each) => each === route.value.query["part"]) ?? first;
  const outcome = OUTCOMES[part];
  const plan = useResource("/api/v1/plan", { cluster: cluster.value, outcome: outcome.length ? outcome : ["act"], limit: MOST_ROWS, language: language.value });
  const journal = useResource(STATES[part] ? "/api/v1/actions" : null, { state: STATES[part] ?? [], limit: MOST_ROWS, language: language.value });
  const savings = useResource("/api/v1/savings", { days: days.value });
  const table = useResource("/api/v1/workloads/table", { cluster: cluster.value });
  const rows = useMemo(() => new Map((table.data ? makeRows(table.data) : []).map((row) => [row.id, row])), [table.data]);
  const mode = plan.data?.mode;
  return (
    <div class="page actions-page">
      <Headline plan={plan} savings={savings} status={status} />
      {mode === "off" && !suspended && !journal.data?.items.length ? <FirstSteps /> : (
        <>
          <div class="actions-tools">
            <Segments
              label={texts("parts")}
              value={part}
              choices={PARTS.map((value) => ({ value, text: nameOf(value, plan.data) }))}
              onChoose={(value) => changeQuery({ part: value === first ? "" : value, chosen: "" })}
            />
          </div>
          <Content part={part} plan={plan} journal={journal} savings={savings.data} rows={rows} />
        </>
      )}
    </div>
  );
}

/** The part with how many it has, where the plan says so. */
function nameOf(part: Part, plan: Plan | undefined): string {
  const name = texts(part === "done" && plan?.mode === "observe" ? "part-done-observe" : `part-${part}`);
  const count = !plan ? 0 : part === "planned" ? countPlanned(plan) : part === "refused" ? (plan.counts["refuse"] ?? 0) : 0;
  return count ? `${name} ${count}` : name;
}

interface ContentProps {
  readonly part: Part;
  readonly plan: ResourceView<Plan>;
  readonly journal: ResourceView<{ readonly items: readonly Action[] }>;
  readonly savings: Savings | undefined;
  readonly rows: ReadonlyMap<string, Row>;
}

function Content({ part, plan, journal, savings, rows }: ContentProps) {
  const decisions = useMemo(() => (OUTCOMES[part].length ? listDecisions(plan.data?.items ?? []) : []), [part, plan.data]);
  const actions = useMemo(() => listActions(journal.data?.items ?? [], part), [part, journal.data]);
  const asked = route.value.query["chosen"];
  const entries = [...decisions, ...actions];
  const entry = entries.find((each) => each.key === asked) ?? findSame(asked, actions);
  // Nothing chosen: the first one shows what there is to see.
  const shown = entry ?? entries[0];
  const empty = texts(part === "done" && plan.data?.mode === "observe" ? "empty-done-observe" : `empty-${part}`);
  const isRefusal = part === "refused";
  const chosen = shown?.key;
  return (
    <div class={`actions-grid ${shown ? "" : "actions-grid-empty"}`}>
      <div class="actions-left">
        {OUTCOMES[part].length > 0 && (
          <section class="panel" aria-label={nameOf(part, plan.data)}>
            <DataState resource={plan} lines={8} isEmpty={() => decisions.length === 0} empty={empty}>
              {() => <DecisionTable entries={decisions} chosen={chosen} rows={rows} isRefusal={isRefusal} />}
            </DataState>
          </section>
        )}
        {STATES[part] && (!isRefusal || actions.length > 0) && (
          <section class="panel" aria-label={nameOf(part, plan.data)}>
            {isRefusal && <h2 class="actions-subtitle">{texts("journal-note")}</h2>}
            <DataState resource={journal} lines={8} isEmpty={() => actions.length === 0} empty={empty}>
              {() => <ActionTable entries={actions} chosen={chosen} rows={rows} savings={savings} />}
            </DataState>
            {actions.length >= MOST_ROWS && <p class="secondary small">{texts("more", { n: MOST_ROWS })}</p>}
          </section>
        )}
      </div>
      {shown && <EntryPanel entry={shown} isChosen={!!entry} />}
    </div>
  );
}

/** A link may name a workload as `NAMESPACE/NAME`. */
function findSame(asked: string | undefined, entries: readonly Entry[]): Entry | undefined {
  return asked ? entries.find((each) => each.type === "action" && `${each.action.namespace}/${each.action.name}` === asked) : undefined;
}
