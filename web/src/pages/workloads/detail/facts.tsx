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
  const { cost_micros_per_hour: perHour, idle_cost_micros: cost, currency } = workload;
  const rate: Fact = perHour === null ? ["facts-gpus", fmt.gpus(workload.gpus)] : ["facts-rate", fmt.money(perHour, currency)];
  const held: Fact = ["facts-held", evidence.memory_used_bytes == null ? "–" : fmt.bytes(evidence.memory_used_bytes)];
  if (workload.idle_since) {
    const idle: Fact = ["facts-idle", <Since at={workload.idle_since} />];
    const hours = (workload.idle_gpus * (Date.now() - Date.parse(workload.idle_since))) / 3_600_000;
    const spent: Fact = cost === null ? ["facts-idle-hours", fmt.number(hours, hours < 10 ? 1 : 0)] : ["facts-cost", fmt.money(cost, currency)];
    return [idle, spent, proof, findRequests(workload.requests) ?? findChance(workload.resumption) ?? held];
  }
  const state: Fact = ["facts-verdict", describeVerdict(data)];
  const last = findRequests(workload.requests) ?? held;
  if (workload.activity === "unknown") {
    return [state, ["facts-coverage", evidence.coverage == null ? "–" : fmt.percent(evidence.coverage)], rate, last];
  }
  return [state, rate, proof, last];
}

/** What its inference servers count; undefined: it has none, or they do not say. */
function findRequests(requests: DetailData["workload"]["requests"]): Fact | undefined {
  if (requests?.silent_since) return ["facts-silent", <Since at={requests.silent_since} />];
  if (!requests || requests.per_hour === null) return undefined;
  const tokens = requests.tokens_per_hour === null ? "" : texts("facts-tokens", { n: fmt.number(requests.tokens_per_hour, 0) });
  const digits = requests.per_hour > 0 && requests.per_hour < 10 ? 1 : 0;
  return ["facts-requests", <>{fmt.number(requests.per_hour, digits)} <small>{tokens}</small></>];
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

function describeVerdict({ workload }: DetailData): ComponentChildren {
  const word = wordOf("verdict", workload.verdict);
  if (workload.idle_gpus > 0 && workload.idle_gpus < workload.gpus) {
    return `${word}, ${texts("partly", { gpus: fmt.gpus(workload.idle_gpus), total: fmt.gpus(workload.gpus) })} ${wordOf("verdict", "idle")}`;
  }
  return word;
}
