/** Put back what an action changed, after showing exactly what that is. */
import { useState } from "preact/hooks";
import { isAborted, Problem, write } from "../api/client";
import { refreshMatching } from "../api/resources";
import { Dialog } from "../components/dialog";
import { showToast } from "../components/toast";
import { t } from "../i18n";
import { identity, isOperator } from "../state/session";
import { ChangeBox } from "./changes";
import { stateOf, texts } from "./texts";
import type { Action } from "./types";

/** Why this person cannot restore; empty: they can. */
export function whyNotRestore(): string {
  return isOperator.value ? "" : texts("restore-role", { role: identity.value?.role ?? "–" });
}

export function RestoreButton({ of: action, isPrimary = false }: { of: Action; isPrimary?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const reason = whyNotRestore();
  const restore = async () => {
    setBusy(true);
    try {
      const done = await write("post", "/api/v1/actions/{action_id}/restore", { action_id: action.id });
      showToast(texts("restore-done", { name: action.name, state: stateOf(done) }));
      setOpen(false);
    } catch (error) {
      if (!isAborted(error)) showToast(error instanceof Problem && error.message ? error.message : t("panel.offline"), "fault");
    }
    setBusy(false);
    refreshAll();
  };
  return (
    <>
      <button type="button" class={`button ${isPrimary ? "button-primary" : ""}`} disabled={!!reason} title={reason || undefined} onClick={() => setOpen(true)}>
        {texts("restore")}
      </button>
      {isOpen && (
        <Dialog
          title={texts("restore-title", { name: action.name })}
          onClose={() => setOpen(false)}
          actions={
            <>
              <button type="button" class="button" onClick={() => setOpen(false)}>{t("dialog.cancel")}</button>
              <button type="button" class="button button-primary" disabled={isBusy} onClick={() => void restore()}>{texts("restore-save")}</button>
            </>
          }
        >
          <div class="form">
            <p class="secondary">{texts("restore-text")}</p>
            {action.target && <ChangeBox method="PATCH" path={action.target.path} before={action.patch} after={fillAbsent(action)} />}
          </div>
        </Dialog>
      )}
    </>
  );
}

/** Every field that was set, with the value it had. */
function fillAbsent(action: Action): Record<string, unknown> {
  return Object.fromEntries(Object.keys(action.patch).map((pointer) => [pointer, action.original[pointer] ?? null]));
}

/** After every change by hand. */
export function refreshAll(): void {
  for (const part of ["/actions", "/plan", "/savings", "/reclaim", "/workloads/", "/overview"]) refreshMatching(`/api/v1${part}`);
}
