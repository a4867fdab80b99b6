/** Replay a policy file that is not in effect. Changes nothing. */
import { useState } from "preact/hooks";
import { isAborted, Problem, write } from "../../api/client";
import { PanelHead } from "../../components/panel";
import { fmt, language, t } from "../../i18n";
import type { Replay } from "./frontier";
import { texts } from "./texts";

const EXAMPLE = `policies:
  - name: notebooks-at-night
    match: {classes: [interactive]}
    window: 2h
    grace: 30m
    action: suspend
`;

interface Props {
  readonly since: string;
  readonly minutes: number;
  readonly tried: Replay | undefined;
  readonly onTried: (replay: Replay | undefined) => void;
}

export function TryPanel({ since, minutes, tried, onTried }: Props) {
  const [policy, setPolicy] = useState(EXAMPLE);
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const run = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      onTried(await write("post", "/api/v1/replay", {}, { policy, since, regret_minutes: minutes, frontier: false, language: language.value }));
    } catch (error) {
      onTried(undefined);
      if (!isAborted(error)) setProblem(error instanceof Problem && error.message ? error.message : t("panel.offline"));
    }
    setBusy(false);
  };
  return (
    <section class="panel try-panel">
      <PanelHead title={texts("try")} />
      <form onSubmit={(event) => void run(event)}>
        <p class="secondary">{texts("try-hint")}</p>
        <label>
          <span class="visually-hidden">{texts("try-label")}</span>
          <textarea class="field" rows={9} spellcheck={false} value={policy} onInput={(event) => setPolicy(event.currentTarget.value)} />
        </label>
        {problem && <pre class="try-problem" role="alert">{problem}</pre>}
        <footer>
          <span role="status">{tried && texts("try-result", { hours: fmt.number(tried.policy.gpu_hours), regretted: tried.policy.regretted, releases: tried.policy.releases })}</span>
          {tried && <button type="button" class="button" onClick={() => onTried(undefined)}>{texts("try-clear")}</button>}
          <button type="submit" class="button button-primary" disabled={isBusy || !policy.trim()}>{texts("try-run")}</button>
        </footer>
      </form>
    </section>
  );
}
