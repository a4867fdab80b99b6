/** One row per workload or action; a row opens beside the list. */
import { AmountLine } from "../../components/bar";
import { Badge, type Tone } from "../../components/badge";
import { LocalText } from "../../components/local-text";
import { Since, Time } from "../../components/time";
import { WorkloadName } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { changeQuery, formatRoute, route } from "../../router";
import { firstReason } from "../../reclaim/forecast";
import { ForecastLine } from "../../reclaim/forecast-line";
import { stateOf, texts as words } from "../../reclaim/texts";
import type { Action, Decision, Savings } from "../../reclaim/types";
import { type Row, rowId } from "../workloads/rows";
import { type Entry, timeOf } from "./entries";
import { texts } from "./texts";

const TONES: Readonly<Record<string, Tone>> = {
  warned: "idle", acting: "active", acted: "good", verified: "good", failed: "fault", refused: "plain",
  restoring: "active", restored: "active", reverted: "suspicious", ended: "plain", planned: "plain",
};

interface Props {
  readonly entries: readonly Entry[];
  readonly chosen: string | undefined;
  readonly rows: ReadonlyMap<string, Row>;
  readonly savings: Savings | undefined;
}

export function DecisionTable({ entries, chosen, rows, isRefusal }: Omit<Props, "savings"> & { readonly isRefusal: boolean }) {
  return (
    <table class="rows actions-table">
      <thead>
        <tr>
          <th scope="col">{texts("workload")}</th>
          <th scope="col" class="actions-next">{texts(isRefusal ? "why" : "next")}</th>
          <th scope="col" class="actions-policy">{texts("policy")}</th>
          <th scope="col" class="number actions-idle">{texts("idle")}</th>
        </tr>
      </thead>
      <tbody>
        {entries.map((entry) => entry.type === "decision" && (
          <ChoosableRow key={entry.key} id={entry.key} isChosen={entry.key === chosen}>
            <NameCell id={entry.key} of={entry.decision} row={rows.get(rowId(entry.decision))} />
            <td class="actions-next">{isRefusal ? <LocalText text={firstReason(entry.decision.answers)} /> : <ForecastLine of={entry.decision} withReason={!isSoon(entry.decision)} />}</td>
            <td class="actions-policy secondary nowrap">{entry.decision.policy || "–"}</td>
            <td class="number actions-idle">{entry.decision.idle_since ? <Since at={entry.decision.idle_since} /> : "–"}</td>
          </ChoosableRow>
        ))}
      </tbody>
    </table>
  );
}

/** What is due within the hour needs no reason beside it: only time is missing. */
function isSoon({ outcome, due_at: due }: Decision): boolean {
  return outcome === "act" || (due !== null && Date.parse(due) < Date.now() + 3_600_000);
}

export function ActionTable({ entries, chosen, rows, savings }: Props) {
  const saved = new Map(savings?.items.map((each) => [each.id, each]));
  const isPriced = savings?.items.some((each) => each.cost_micros !== null) ?? false;
  const amountOf = (action: Action) => (isPriced ? saved.get(action.id)?.cost_micros : saved.get(action.id)?.gpu_hours) ?? null;
  const most = Math.max(...entries.map((entry) => (entry.type === "action" && amountOf(entry.action)) || 0), 1e-9);
  return (
    <table class="rows actions-table">
      <thead>
        <tr>
          <th scope="col">{texts("workload")}</th>
          <th scope="col">{texts("state")}</th>
          <th scope="col" class="actions-when">{texts("when")}</th>
          <th scope="col" class="actions-by">{texts("by")}</th>
          <th scope="col" class="number">{isPriced ? texts("saved-of", { currency: savings?.currency ?? "" }) : texts("saved-hours")}</th>
        </tr>
      </thead>
      <tbody>
        {entries.map((entry) => {
          if (entry.type !== "action") return null;
          const { action } = entry;
          const amount = amountOf(action);
          return (
            <ChoosableRow key={entry.key} id={entry.key} isChosen={entry.key === chosen}>
              <NameCell id={entry.key} of={action} row={rows.get(rowId(action))} models={modelsOf(action)} />
              <td><StateBadge of={action} /></td>
              <td class="nowrap actions-when">{timeOf(action) ? <Time at={timeOf(action)!} /> : "–"}</td>
              <td class="actions-by secondary">{lastBy(action)}</td>
              <td class="number actions-saved">
                {amount === null ? "–" : <><strong>{isPriced ? fmt.amount(amount) : fmt.number(amount, 2)}</strong><AmountLine ratio={amount / most} /></>}
              </td>
            </ChoosableRow>
          );
        })}
      </tbody>
    </table>
  );
}

export function StateBadge({ of: action }: { of: Action }) {
  return (
    <span class="state-badges">
      <Badge tone={TONES[action.state] ?? "plain"}>{stateOf(action)}</Badge>
      {action.is_dry_run && <span class="badge badge-dry" title={words("dry-run-hint")}>{words("dry-run")}</span>}
    </span>
  );
}

/** Who made the last step: a person, or gpusteward itself. */
export function lastBy(action: Action): string {
  return action.steps.at(-1)?.by || action.by || "–";
}

export function modelsOf(action: Action): readonly string[] {
  const allocations = action.evidence["allocations"] as readonly { readonly model?: string }[] | undefined;
  return [...new Set((allocations ?? []).map((each) => each.model ?? "").filter(Boolean))];
}

interface RowProps {
  readonly id: string;
  readonly isChosen: boolean;
  readonly children: preact.ComponentChildren;
}

/** The whole row can be clicked; its name is the link for the keyboard. */
function ChoosableRow({ id, isChosen, children }: RowProps) {
  return (
    <tr class={`row ${isChosen ? "chosen" : ""}`} aria-current={isChosen ? "true" : undefined} onClick={() => changeQuery({ chosen: id })}>
      {children}
    </tr>
  );
}

interface NameProps {
  readonly id: string;
  readonly of: Decision | Action;
  readonly row: Row | undefined;
  readonly models?: readonly string[];
}

function NameCell({ id, of: key, row, models }: NameProps) {
  const { page, path, query } = route.value;
  const known = (models?.length ? models : row?.models ?? []).map(fmt.model).join(", ");
  const gpus = known ? texts("gpu-count", { gpus: fmt.gpus(key.gpus), model: known }) : texts("gpus-plain", { gpus: fmt.gpus(key.gpus), n: key.gpus });
  return (
    <td class="actions-name">
      <a class="workload-link" href={formatRoute(page, path, { ...query, chosen: id })}><WorkloadName of={key} /></a>
      <small>{[row?.users.join(", "), gpus].filter(Boolean).join(" · ")}</small>
    </td>
  );
}
