/** Every guard and its answer: those that say no stand first, those that agree open on request. */
import { LocalText } from "../components/local-text";
import { sortGuards } from "./forecast";
import { texts, wordOr } from "./texts";
import type { Guard } from "./types";

export function Guards({ answers }: { answers: readonly Guard[] }) {
  const { against, unasked, passed } = sortGuards(answers);
  return (
    <div class="guard-list">
      <GuardList answers={against} />
      <GuardList answers={unasked} />
      {passed.length > 0 && (
        <details open={against.length + unasked.length === 0 && passed.length <= 6}>
          <summary>{texts("guards-show", { n: passed.length })}</summary>
          <GuardList answers={passed} />
        </details>
      )}
    </div>
  );
}

export function countGuards(answers: readonly Guard[]): string {
  return texts("guards-passed", { n: sortGuards(answers).passed.length, total: answers.length });
}

function GuardList({ answers }: { answers: readonly Guard[] }) {
  if (!answers.length) return null;
  return (
    <ul>
      {answers.map((each) => (
        <li key={each.guard} class={each.passed === false ? "guard-no" : ""}>
          <Mark passed={each.passed} />
          <span>
            <strong>{wordOr("guard", each.guard)}</strong> <small><LocalText text={each.reason} /></small>
          </span>
        </li>
      ))}
    </ul>
  );
}

function Mark({ passed }: { passed: boolean | null }) {
  const [sign, label, tone] = passed === null ? (["–", "guards-unasked", "neutral"] as const) : passed ? (["✓", "guards-yes", "yes"] as const) : (["✕", "guards-no", "no"] as const);
  return (
    <>
      <i class={`guard-mark guard-mark-${tone}`} aria-hidden="true">{sign}</i>
      <span class="visually-hidden">{texts(label)}: </span>
    </>
  );
}
