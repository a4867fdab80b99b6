import { fmt } from "../../../i18n";
import { texts } from "../texts";
import type { DetailData } from "./detail";
import { LocalText } from "./local-text";

const MOST_SETS = 4;

/** Every reason with its threshold and proof, as the rules state it; what all GPUs share stands once. */
export function Reasons({ data }: { data: DetailData }) {
  const sets = groupReasons(data);
  const opinions = data.allocations.flatMap((one) => (one.opinion ? [one.opinion] : []));
  return (
    <div class="reasons">
      {sets.map((set) => (
        <div key={set.title}>
          {set.title && <h3>{set.title}</h3>}
          <ul>
            {set.reasons.map((reason) => (
              <li key={reason}><Mark sign="✓" /><span><LocalText text={reason} /></span></li>
            ))}
          </ul>
        </div>
      ))}
      {opinions.length > 0 && (
        <ul>
          {opinions.slice(0, 1).map((opinion) => (
            <li key={opinion.reason} class="reason-opinion">
              <Mark sign="–" />
              <span>
                {texts("opinion", { status: opinion.status, confidence: fmt.number(opinion.confidence, 2) })}: {opinion.reason}{" "}
                <small>{texts("opinion-hint")}</small>
              </span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Mark({ sign }: { sign: string }) {
  return <i class={sign === "✓" ? "mark-yes" : "mark-neutral"} aria-hidden="true">{sign}</i>;
}

interface ReasonSet {
  readonly title: string;
  readonly reasons: readonly string[];
}

/** Reasons of the workload with those that hold for each of its GPUs, then what differs by GPU. */
export function groupReasons({ reasons, allocations }: Pick<DetailData, "reasons" | "allocations">): ReasonSet[] {
  const [first, ...others] = allocations;
  const common = (first?.reasons ?? []).filter((reason) => others.every((one) => one.reasons.includes(reason)));
  const shared = [...new Set([...reasons, ...common])];
  const rest = new Map<string, ReasonSet>();
  for (const { allocation, reasons: own } of allocations) {
    const different = own.filter((reason) => !shared.includes(reason));
    const key = different.join("\n");
    if (!different.length) continue;
    const title = texts("reasons-gpu", { index: allocation.index, node: allocation.node });
    const known = rest.get(key);
    rest.set(key, { title: known ? `${known.title}, ${allocation.index}` : title, reasons: different });
  }
  return [{ title: "", reasons: shared }, ...[...rest.values()].slice(0, MOST_SETS)];
}
