/** Exactly what is written to an object: its path in the API of Kubernetes, and each field before and after. */
import { listFields, showValue } from "./forecast";
import { texts } from "./texts";

interface Props {
  readonly method: string;
  readonly path: string;
  readonly before: Readonly<Record<string, unknown>>;
  readonly after: Readonly<Record<string, unknown>>;
}

export function ChangeBox({ method, path, before, after }: Props) {
  return (
    <div class="change-box">
      <code class="change-path"><b>{method}</b> {path}</code>
      <dl>
        {listFields(before, after).map((each) => (
          <div key={each.field}>
            <dt><code>{each.field}</code></dt>
            <dd><Value of={each.before} kind="before" /> <span aria-hidden="true">→</span> <Value of={each.after} kind="after" /></dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Value({ of: value, kind }: { of: unknown; kind: "before" | "after" }) {
  const shown = showValue(value);
  return shown === null ? <em class="secondary">{texts("absent")}</em> : <code class={`change-${kind}`}>{shown}</code>;
}
