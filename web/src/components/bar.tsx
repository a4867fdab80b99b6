/** A bar that adds up: active, suspicious, idle, unknown and free. Patterns tell them apart without colour. */
import { t } from "../i18n";
import { fmt } from "../i18n";

export type Share = "active" | "suspicious" | "idle" | "unknown" | "free";

interface Props {
  readonly parts: readonly { readonly kind: Share; readonly value: number }[];
  readonly label: string;
  readonly size?: "large" | "small";
}

export function StackedBar({ parts, label, size = "small" }: Props) {
  const shown = parts.filter((part) => part.value > 0);
  return (
    <div class={`stacked stacked-${size}`} role="img" aria-label={label}>
      {shown.map((part) => (
        <i
          key={part.kind}
          class={`fill-${part.kind}`}
          style={{ flexGrow: part.value }}
          title={`${fmt.gpus(part.value)} ${t(`verdict.${part.kind}`)}`}
        />
      ))}
    </div>
  );
}

/** The thin proportional line below an amount of money. */
export function AmountLine({ ratio }: { ratio: number }) {
  return <i class="amount-line" style={{ width: ratio > 0 ? `${Math.max(2, Math.min(100, ratio * 100))}%` : 0 }} />;
}
