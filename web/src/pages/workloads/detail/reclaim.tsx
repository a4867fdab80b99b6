/** What reclaim would do with the workload and why, what it did, and doing or undoing it by hand. */
import { useState } from "preact/hooks";
import { type Answer, isAborted, Problem, write } from "../../../api/client";
import { refreshMatching, useResource } from "../../../api/resources";
import { Dialog } from "../../../components/dialog";
import { Time } from "../../../components/time";
import { showToast } from "../../../components/toast";
import { type WorkloadKey, workloadParameters } from "../../../components/workload-link";
import { fmt, language, t } from "../../../i18n";
import { isOperator } from "../../../state/session";
import { texts, type WorkloadText } from "../texts";
import { ChangeBox } from "../../../reclaim/changes";
import { wordOr } from "../../../reclaim/texts";
import { LocalText, Section } from "./local-text";
import "../../../reclaim/reclaim.css";

type Plan = Answer<"/api/v1/plan">;
export type Decision = Plan["items"][number];
export type Action = Answer<"/api/v1/actions">["items"][number];

const SUSPEND = "/api/v1/workloads/{kind}/{namespace}/{name}/suspend";
const RESTORE = "/api/v1/actions/{action_id}/restore";

/** The decision of the last plan; undefined while reclaim is off or has none. */
export function useDecision(key: WorkloadKey): { readonly mode: string; readonly decision: Decision | undefined } {
  const { data } = useResource("/api/v1/plan", { ...key, limit: 1, language: language.value });
  return { mode: data?.mode ?? "off", decision: data?.items.find((one) => one.cluster === key.cluster) };
}

/** The journal of the workload, the newest first. */
export function useActions(key: WorkloadKey): readonly Action[] {
  const { data } = useResource("/api/v1/actions", { ...key, limit: 20, language: language.value });
  return data?.items ?? [];
}

/** Why a person may not suspend it; empty: they may. Time and budgets hold for the automatic only. */
export function refusalOf(decision: Decision | undefined): string {
  if (!decision) return texts("needs-plan");
  if (decision.outcome !== "refuse" && decision.outcome !== "nothing") return "";
  return decision.answers.find((one) => one.passed === false)?.reason ?? texts("outcome-nothing");
}

export function Reclaim({ mode, decision }: { readonly mode: string; readonly decision: Decision | undefined }) {
  if (mode === "off" || !decision) return null;
  const reason = decision.answers.find((one) => one.passed === false)?.reason ?? "";
  return (
    <Section title={texts("reclaim")} aside={<span class="secondary small">{texts("reclaim-policy", { policy: decision.policy || "–" })}</span>}>
      <p>
        <strong>{texts(mode === "observe" && decision.outcome === "act" ? "outcome-would-act" : `outcome-${decision.outcome}`)}</strong>
        {decision.due_at && <> · {texts("reclaim-due")} <Time at={decision.due_at} /></>}
        {reason && <> · <LocalText text={reason} /></>}
      </p>
      <Guards decision={decision} />
    </Section>
  );
}

const MARKS = { yes: "✓", no: "✗", open: "–" } as const;

function Guards({ decision }: { decision: Decision }) {
  return (
    <details class="guards">
      <summary>{texts("reclaim-guards", { n: decision.answers.length })}</summary>
      <ul>
        {decision.answers.map((one) => {
          const mark = one.passed === null ? "open" : one.passed ? "yes" : "no";
          return (
            <li key={one.guard}>
              <i class={`mark-${mark}`} aria-label={texts(`guard-${mark}`)}>{MARKS[mark]}</i>
              <span>{wordOr("guard", one.guard)}</span>
              <span class="secondary"><LocalText text={one.reason} /></span>
            </li>
          );
        })}
      </ul>
    </details>
  );
}

/** Shows what would change, with a dry run of the cluster, before anything is changed. */
export function SuspendDialog({ of: key, onClose }: { of: WorkloadKey; onClose: () => void }) {
  const [preview, setPreview] = useState<Decision | null>(null);
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const run = async (work: () => Promise<void>) => {
    setBusy(true);
    setProblem("");
    try {
      await work();
    } catch (error) {
      if (!isAborted(error)) setProblem(error instanceof Problem && error.message ? error.message : t("panel.offline"));
    }
    setBusy(false);
  };
  const ask = (isPreview: boolean) => write("post", `${SUSPEND}`, { ...workloadParameters(key), preview: isPreview, language: language.value });
  const show = () => run(async () => setPreview((await ask(true)).preview));
  const suspend = () => run(async () => {
    await ask(false);
    showToast(texts("suspend-done"));
    refreshMatching("/api/v1/");
    onClose();
  });
  const refusal = preview ? refusalOf(preview) : "";
  const actions = (
    <>
      <button type="button" class="button" onClick={onClose}>{t("dialog.cancel")}</button>
      {preview
        ? <button type="button" class="button button-danger" disabled={isBusy || !!refusal} onClick={suspend}>{texts("suspend-now")}</button>
        : <button type="button" class="button button-primary" disabled={isBusy} onClick={show}>{texts("suspend-preview")}</button>}
    </>
  );
  return (
    <Dialog title={texts("suspend-title", { name: key.name })} onClose={onClose} actions={actions}>
      <p class="secondary">{texts("suspend-text")}</p>
      {preview && <Preview decision={preview} />}
      {(problem || refusal) && <p class="dialog-problem" role="alert">{problem || refusal}</p>}
    </Dialog>
  );
}

function Preview({ decision }: { decision: Decision }) {
  return (
    <div class="preview">
      {decision.changes.map((change) => <ChangeBox key={change.path} {...change} />)}
      <Guards decision={decision} />
    </div>
  );
}

/** The last action that can be undone. */
export function RestoreButton({ actions }: { actions: readonly Action[] }) {
  const [isBusy, setBusy] = useState(false);
  const last = actions.find((one) => one.is_restorable);
  if (!last) return null;
  const restore = async () => {
    setBusy(true);
    try {
      await write("post", RESTORE, { action_id: last.id });
      showToast(texts("restore-done"));
    } catch (error) {
      if (!isAborted(error)) showToast(error instanceof Problem && error.message ? error.message : t("panel.offline"), "fault");
    }
    setBusy(false);
    refreshMatching("/api/v1/");
  };
  return (
    <button type="button" class="button" disabled={isBusy || !isOperator.value} onClick={restore}>
      {texts("restore", { gpus: fmt.gpus(last.gpus) })}
    </button>
  );
}

/** A word of the journal that this version may not know. */
export function actionState(state: string): string {
  const known: Record<string, WorkloadText> = {
    planned: "state-planned", warned: "state-warned", acting: "state-acting", acted: "state-acted", verified: "state-verified",
    failed: "state-failed", restoring: "state-restoring", restored: "state-restored", refused: "state-refused",
    reverted: "state-reverted", ended: "state-ended",
  };
  const key = known[state];
  return key ? texts(key) : state;
}
