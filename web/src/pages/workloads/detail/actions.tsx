/** What a role may do with the workload. A disabled action says why. */
import { useState } from "preact/hooks";
import { isAborted, Problem, write } from "../../../api/client";
import { refreshMatching, type ResourceView } from "../../../api/resources";
import { Dialog } from "../../../components/dialog";
import { showToast } from "../../../components/toast";
import { type WorkloadKey, workloadParameters } from "../../../components/workload-link";
import { fmt, t } from "../../../i18n";
import { identity, isOperator } from "../../../state/session";
import { texts } from "../texts";
import type { DetailData } from "./detail";
import { type Action, type Decision, refusalOf, RestoreButton, SuspendDialog } from "./reclaim";
import { findSnooze, type HistoryData } from "./timeline";

const NOTIFY = "/api/v1/workloads/{kind}/{namespace}/{name}/notify";
const SNOOZE = "/api/v1/workloads/{kind}/{namespace}/{name}/snooze";

interface Props {
  readonly of: WorkloadKey;
  readonly data: DetailData;
  readonly history: ResourceView<HistoryData>;
  readonly reclaim: { readonly mode: string; readonly decision: Decision | undefined; readonly actions: readonly Action[] };
}

export function Actions({ of: key, data, history, reclaim }: Props) {
  const [isSuspending, setSuspending] = useState(false);
  const [isSnoozing, setSnoozing] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const features = identity.value?.features;
  const snooze = findSnooze(history.data?.snoozes ?? [], Date.now());
  const user = data.workload.users[0];
  const needsRole = isOperator.value ? "" : texts("needs-operator", { role: identity.value?.role ?? "–" });
  const notifyReason = needsRole || (features?.notify ? "" : texts("needs-channel")) || (data.workload.idle_since ? "" : texts("needs-idle"));
  const snoozeReason = needsRole || (features?.ledger ? "" : texts("needs-ledger"));
  const hasReclaim = reclaim.mode !== "off";
  const suspendReason = hasReclaim ? needsRole || describeRefusal(reclaim.decision) : "";
  const reasons = [...new Set([notifyReason, snoozeReason, suspendReason].filter(Boolean))];

  const act = async (work: () => Promise<string>) => {
    setBusy(true);
    try {
      showToast(await work());
    } catch (error) {
      if (!isAborted(error)) showToast(error instanceof Problem && error.message ? error.message : t("panel.offline"), "fault");
    } finally {
      setBusy(false);
      refreshMatching("/workloads/");
    }
  };
  const notify = () => act(async () => {
    const { channels } = await write("post", NOTIFY, workloadParameters(key));
    return texts("notify-done", { channels: channels.join(", ") });
  });
  const endSnooze = () => act(async () => {
    await write("delete", SNOOZE, workloadParameters(key));
    return texts("unsnooze-done");
  });
  const startSnooze = (hours: number, reason: string) => {
    setSnoozing(false);
    void act(async () => {
      const { until } = await write("post", SNOOZE, workloadParameters(key), { hours, reason });
      return texts("snooze-done", { time: until ? fmt.time(new Date(until), "short") : "" });
    });
  };

  return (
    <div class="actions">
      <div class="actions-buttons">
        <button type="button" class="button button-primary" disabled={!!notifyReason || isBusy} onClick={notify}>
          {user ? texts("notify", { user }) : texts("notify-plain")}
        </button>
        {snooze ? (
          <button type="button" class="button" disabled={!!snoozeReason || isBusy} onClick={endSnooze}>{texts("unsnooze")}</button>
        ) : (
          <button type="button" class="button" disabled={!!snoozeReason || isBusy} onClick={() => setSnoozing(true)}>{texts("snooze")}</button>
        )}
        {hasReclaim && <button type="button" class="button" disabled={!!suspendReason || isBusy} onClick={() => setSuspending(true)}>{texts("suspend")}</button>}
        <RestoreButton actions={reclaim.actions} />
      </div>
      {snooze?.until && <p class="small">{texts("snoozed", { time: fmt.time(new Date(snooze.until), "short") })} · {snooze.who} · <span class="secondary">{snooze.reason}</span></p>}
      {reasons.map((reason) => <p key={reason} class="secondary small">{reason}</p>)}
      {isSnoozing && <SnoozeDialog name={key.name} onClose={() => setSnoozing(false)} onSave={startSnooze} />}
      {isSuspending && <SuspendDialog of={key} onClose={() => setSuspending(false)} />}
    </div>
  );
}

function describeRefusal(decision: Decision | undefined): string {
  const reason = refusalOf(decision);
  return reason && texts("suspend-refused", { reason });
}

const HOURS = [4, 24, 72, 168, 336] as const;

interface DialogProps {
  readonly name: string;
  readonly onClose: () => void;
  readonly onSave: (hours: number, reason: string) => void;
}

function SnoozeDialog({ name, onClose, onSave }: DialogProps) {
  const [hours, setHours] = useState<number>(24);
  const [reason, setReason] = useState("");
  const save = (event: Event) => {
    event.preventDefault();
    if (reason.trim()) onSave(hours, reason.trim());
  };
  return (
    <Dialog title={texts("snooze-title", { name })} onClose={onClose}>
      <form class="form" onSubmit={save}>
        <p class="secondary">{texts("snooze-text")}</p>
        <fieldset>
          <legend>{texts("snooze-for")}</legend>
          <div class="choices">
            {HOURS.map((each) => (
              <label key={each}>
                <input type="radio" name="hours" checked={each === hours} onChange={() => setHours(each)} />
                <span>{texts(`hours-${each}`)}</span>
              </label>
            ))}
          </div>
        </fieldset>
        <label>
          <span>{texts("snooze-reason")}</span>
          <input class="field" required maxLength={500} value={reason} placeholder={texts("snooze-reason-hint")} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
        <footer class="dialog-actions">
          <button type="button" class="button" onClick={onClose}>{t("dialog.cancel")}</button>
          <button type="submit" class="button button-primary" disabled={!reason.trim()}>{texts("snooze-save")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
