import type { ComponentChildren } from "preact";
import { wordOf } from "../../../components/badge";
import { Since } from "../../../components/time";
import { fmt } from "../../../i18n";
import { texts, type WorkloadText } from "../texts";
import type { DetailData } from "./detail";

/** The verdict in four facts; which ones depends on what it is. */
export function Facts({ data }: { data: DetailData }) {
  return (
    <dl class="facts">
      {listFacts(data).map(([label, value]) => (
        <div key={label}>
          <dt>{texts(label)}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

type Fact = readonly [WorkloadText, ComponentChildren];

function listFacts(data: DetailData): Fact[] {
  const { workload, evidence } = data;
  const proof: Fact = ["facts-proof", texts(workload.proof === "integrated" ? "proof-integrated" : "proof-sampled")];
  const rate: Fact = ["facts-rate", money(workload.cost_micros_per_hour, workload.currency)];
  const held: Fact = ["facts-held", evidence.memory_used_bytes == null ? "–" : fmt.bytes(evidence.memory_used_bytes)];
  if (workload.idle_since) {
    const idle: Fact = ["facts-idle", <Since at={workload.idle_since} />];
    return [idle, ["facts-cost", money(workload.idle_cost_micros, workload.currency)], proof, findChance(workload.resumption) ?? held];
  }
  const state: Fact = ["facts-state", describeState(data)];
  if (workload.activity === "unknown") {
    return [state, ["facts-coverage", evidence.coverage == null ? "–" : fmt.percent(evidence.coverage)], rate, held];
  }
  return [state, rate, proof, held];
}

/** How often work came back within two hours after as long a spell; undefined: too few spells are known. */
function findChance(chances: DetailData["workload"]["resumption"]): Fact | undefined {
  const soon = chances?.within_2_hours;
  if (!chances || !soon || soon.probability === null) return undefined;
  const show = (chance: number | null) => (chance === null ? "–" : fmt.percent(chance, 0));
  const title = texts("resume-title", { half: show(chances.within_30_minutes.probability), morning: show(chances.until_morning.probability) });
  const whose = texts(soon.of === "workload" ? "resume-own" : "resume-kind", { n: soon.spells });
  return ["facts-resume", <span title={title}>{show(soon.probability)} <small>{whose}</small></span>];
}

function describeState({ workload }: DetailData): ComponentChildren {
  const word = wordOf("activity", workload.activity);
  if (workload.idle_gpus > 0 && workload.idle_gpus < workload.gpus) {
    return `${word}, ${texts("partly", { gpus: fmt.gpus(workload.idle_gpus), total: fmt.gpus(workload.gpus) })} ${wordOf("activity", "idle")}`;
  }
  return word;
}

function money(micros: number | null, currency: string | null): string {
  return micros === null ? "–" : fmt.money(micros, currency);
}
