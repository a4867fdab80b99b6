/** The policies in effect, what they would have done in the past, and which GPUs could be lent. */
import { useEffect, useState } from "preact/hooks";
import { useResource } from "../../api/resources";
import { DataState } from "../../components/panel";
import { Segments } from "../../components/segments";
import { fmt, language } from "../../i18n";
import { changeQuery, route } from "../../router";
import { hasLedger } from "../../state/session";
import type { Replay } from "./frontier";
import { FrontierPanel } from "./frontier-panel";
import { LendablePanel } from "./lendable-panel";
import { ReleasesPanel } from "./releases-panel";
import { RulesPanel } from "./rules-panel";
import { texts } from "./texts";
import { TryPanel } from "./try-panel";
import "../../styles/tables.css";
import "./policies.css";

const DAYS = [7, 14, 30] as const;
const MINUTES = [15, 30, 60] as const;

export default function Policies() {
  const { query } = route.value;
  const days = DAYS.find((each) => each === Number(query["since"])) ?? 14;
  const minutes = MINUTES.find((each) => each === Number(query["regret"])) ?? 30;
  const since = `${days}d`;
  // Not with every cycle: a replay reads all idle spells of the period.
  const isOn = hasLedger.value;
  const replay = useResource(isOn ? "/api/v1/replay" : null, { since, regret_minutes: minutes, language: language.value }, { live: false });
  const [tried, setTried] = useState<Replay | undefined>(undefined);
  useEffect(() => setTried(undefined), [days, minutes]);
  if (isOn === false) {
    return (
      <div class="page policies">
        <div class="policies-head"><Sentence title={texts("no-ledger")}>{texts("no-ledger-hint")}</Sentence></div>
        <div class="policies-grid"><RulesPanel /></div>
      </div>
    );
  }
  return (
    <div class="page policies">
      <div class="policies-head">
        <DataState resource={replay} lines={2}>{(data) => <Headline data={data} days={days} />}</DataState>
        <div class="policies-tools">
          <Segments label={texts("since")} value={days} choices={DAYS.map((value) => ({ value, text: texts(`since-${value}`) }))} onChoose={(value) => changeQuery({ since: value === 14 ? "" : value })} />
          <span class="policies-regret">
            <span class="secondary small" title={texts("regret")}>{texts("regret-label")}</span>
            <Segments label={texts("regret")} value={minutes} choices={MINUTES.map((value) => ({ value, text: texts(`regret-${value}`) }))} onChoose={(value) => changeQuery({ regret: value === 30 ? "" : value })} />
          </span>
        </div>
      </div>
      <div class="policies-grid">
        <FrontierPanel replay={replay} tried={tried?.policy} />
        <ReleasesPanel replay={replay} tried={tried} />
        <RulesPanel />
        <LendablePanel />
        <TryPanel since={since} minutes={minutes} tried={tried} onTried={setTried} />
      </div>
    </div>
  );
}

function Headline({ data, days }: { data: Replay; days: number }) {
  const { policy, spells, currency } = data;
  if (!spells) return <Sentence title={texts("headline-empty")}>{texts("sub-empty")}</Sentence>;
  if (!policy.releases) return <Sentence title={texts("headline-none")}>{texts("sub-none", { spells: fmt.number(spells), days })}</Sentence>;
  const fields = { days, n: policy.releases, regret: <strong>{policy.regretted}</strong>, minutes: data.regret_minutes };
  const title = texts.rich("headline", { hours: <em class="good-number">{fmt.number(policy.gpu_hours)}</em> });
  return (
    <Sentence title={title}>
      {policy.cost === null
        ? texts.rich("sub-hours", fields)
        : texts.rich("sub-cost", { ...fields, money: <strong>{fmt.money(policy.cost * 1e6, currency)}</strong> })}
    </Sentence>
  );
}

function Sentence({ title, children }: { title: preact.ComponentChildren; children: preact.ComponentChildren }) {
  return (
    <div>
      <h1>{title}</h1>
      <p class="policies-sub">{children}</p>
    </div>
  );
}
