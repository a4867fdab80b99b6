/** One planned workload or one action beside the list: guards, exactly what changes, what happened, restore. */
import { useEffect, useRef } from "preact/hooks";
import { LocalText } from "../../components/local-text";
import { PanelHead } from "../../components/panel";
import { Time } from "../../components/time";
import { workloadLink } from "../../components/workload-link";
import { fmt } from "../../i18n";
import { changeQuery } from "../../router";
import { ChangeBox } from "../../reclaim/changes";
import { guardsOf } from "../../reclaim/forecast";
import { ForecastLine } from "../../reclaim/forecast-line";
import { countGuards, Guards } from "../../reclaim/guards";
import { RestoreButton, whyNotRestore } from "../../reclaim/restore";
import { texts as words, wordOr } from "../../reclaim/texts";
import type { Action, Decision, Guard } from "../../reclaim/types";
import type { Entry } from "./entries";
import { StateBadge } from "./list";
import { texts } from "./texts";

export function EntryPanel({ entry, isChosen }: { entry: Entry; isChosen: boolean }) {
  const panel = useRef<HTMLElement>(null);
  const key = isChosen ? entry.key : undefined;
  // On a narrow page the panel is below the list.
  useEffect(() => {
    if (key !== undefined && matchMedia("(max-width: 1240px)").matches) panel.current?.scrollIntoView({ block: "start" });
  }, [key]);
  useEffect(() => {
    if (key === undefined) return;
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]") && changeQuery({ chosen: "" });
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [key]);
  return (
    <section class="panel actions-detail" ref={panel} aria-live="off">
      <Head of={entry.type === "decision" ? entry.decision : entry.action} isChosen={isChosen} />
      {entry.type === "decision" ? <DecisionDetail key={entry.key} of={entry.decision} /> : <ActionDetail key={entry.key} of={entry.action} />}
    </section>
  );
}

function Head({ of: key, isChosen }: { of: Decision | Action; isChosen: boolean }) {
  return (
    <>
      <PanelHead
        title={<span class="actions-title">{key.name}</span>}
        aside={isChosen && <button type="button" class="button button-quiet" onClick={() => changeQuery({ chosen: "" })}>{texts("close")} <kbd aria-hidden="true">Esc</kbd></button>}
      />
      <p class="actions-path">
        {[key.cluster, key.namespace, key.kind, texts("gpus-plain", { gpus: fmt.gpus(key.gpus), n: key.gpus })].filter(Boolean).join(" · ")}
        {key.policy && ` · ${texts("policy-is", { policy: key.policy })}`}
        {" · "}<a href={workloadLink(key)}>{texts("open")}</a>
      </p>
    </>
  );
}

function DecisionDetail({ of: decision }: { of: Decision }) {
  return (
    <>
      <p class="actions-forecast"><ForecastLine of={decision} /></p>
      <h3>{words("changes")}</h3>
      {decision.changes.length ? decision.changes.map((each) => <ChangeBox key={each.path} {...each} />) : <p class="secondary small">{words("changes-unread")}</p>}
      <GuardSection answers={decision.answers} />
    </>
  );
}

function ActionDetail({ of: action }: { of: Action }) {
  const reasons = (action.evidence["reasons"] as readonly string[] | undefined) ?? [];
  const hint = action.is_restorable ? whyNotRestore() : "";
  return (
    <>
      <div class="actions-state">
        <StateBadge of={action} />
        {action.is_restorable && <RestoreButton of={action} isPrimary />}
      </div>
      {hint && <p class="secondary small">{hint}</p>}
      {action.error && <p class="fault-text" role="alert"><LocalText text={action.error} /></p>}
      {action.target && Object.keys(action.patch).length > 0 && (
        <>
          <h3>{texts(action.is_dry_run ? "would-change" : "changed")}</h3>
          <ChangeBox method="PATCH" path={action.target.path} before={action.original} after={action.patch} />
        </>
      )}
      <h3>{texts("steps")}</h3>
      <ol class="steps">
        {[...action.steps].reverse().map((step, index) => (
          <li key={index}>
            {step.at ? <Time at={step.at} style="short" /> : <span />}
            <span>
              {wordOr("state", step.state)}
              <small>{texts("by-who", { who: step.by })}{step.note && <> · <LocalText text={step.note} /></>}</small>
            </span>
          </li>
        ))}
      </ol>
      {reasons.length > 0 && (
        <>
          <h3>{texts("evidence")}</h3>
          <ul class="evidence">{reasons.map((reason) => <li key={reason}><LocalText text={reason} /></li>)}</ul>
        </>
      )}
      {guardsOf(action).length > 0 && <GuardSection answers={guardsOf(action)} />}
    </>
  );
}

function GuardSection({ answers }: { answers: readonly Guard[] }) {
  return (
    <>
      <h3 class="guards-title"><span>{words("guards")}</span> <small>{countGuards(answers)}</small></h3>
      <Guards answers={answers} />
    </>
  );
}
