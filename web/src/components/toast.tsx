/** Short messages about what just happened; a failure stays until it is dismissed. */
import { signal } from "@preact/signals";
import { t } from "../i18n";

interface Toast {
  readonly id: number;
  readonly text: string;
  readonly tone: "good" | "fault";
}

const toasts = signal<readonly Toast[]>([]);
const SHOWN_MS = 6000;
let next = 0;

export function showToast(text: string, tone: Toast["tone"] = "good"): void {
  const toast = { id: next++, text, tone };
  toasts.value = [...toasts.value.slice(-3), toast];
  if (tone === "good") setTimeout(() => dismiss(toast.id), SHOWN_MS);
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast toast-${toast.tone}`}>
          <span>{toast.text}</span>
          <button type="button" class="button button-quiet" onClick={() => dismiss(toast.id)}>{t("toast.dismiss")}</button>
        </div>
      ))}
    </div>
  );
}
