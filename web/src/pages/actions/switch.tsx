/** The switch that stops all actions, for administrators; asked twice. */
import { useState } from "preact/hooks";
import { type Answer, isAborted, Problem, write } from "../../api/client";
import { Dialog } from "../../components/dialog";
import { showToast } from "../../components/toast";
import { t } from "../../i18n";
import { identity, isAdmin } from "../../state/session";
import { refreshAll } from "../../reclaim/restore";
import { texts } from "./texts";

export type ReclaimStatus = Answer<"/api/v1/reclaim">;

export function SwitchButton({ status }: { status: ReclaimStatus }) {
  const [isOpen, setOpen] = useState(false);
  const isOff = status.switch?.is_off ?? false;
  const hint = isAdmin.value ? "" : texts("stop-role", { role: identity.value?.role ?? "–" });
  return (
    <>
      <button type="button" class={`button ${isOff ? "button-primary" : "button-stop"}`} disabled={!!hint} title={hint || undefined} onClick={() => setOpen(true)}>
        {texts(isOff ? "start" : "stop")}
      </button>
      {hint && <p class="visually-hidden">{hint}</p>}
      {isOpen && <SwitchDialog status={status} isOff={isOff} onClose={() => setOpen(false)} />}
    </>
  );
}

function SwitchDialog({ status, isOff, onClose }: { status: ReclaimStatus; isOff: boolean; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const save = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      if (isOff) await write("post", "/api/v1/reclaim/on");
      else await write("post", "/api/v1/reclaim/off", { reason: reason.trim() });
      showToast(texts(isOff ? "start-done" : "stop-done"));
      onClose();
    } catch (error) {
      if (!isAborted(error)) showToast(error instanceof Problem && error.message ? error.message : t("panel.offline"), "fault");
    }
    setBusy(false);
    refreshAll();
  };
  return (
    <Dialog title={texts(isOff ? "start-title" : "stop-title")} onClose={onClose}>
      <form class="form" onSubmit={(event) => void save(event)}>
        <p class="secondary">{isOff ? texts("start-text", { mode: texts(`mode-${status.mode}`) }) : texts("stop-text")}</p>
        {!isOff && (
          <label>
            <span>{texts("stop-reason")}</span>
            <input class="field" maxLength={500} value={reason} placeholder={texts("stop-reason-hint")} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
        )}
        <footer class="dialog-actions">
          <button type="button" class="button" onClick={onClose}>{t("dialog.cancel")}</button>
          <button type="submit" class={`button ${isOff ? "button-primary" : "button-danger"}`} disabled={isBusy}>{texts(isOff ? "start-save" : "stop-save")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
