/** One workload beside the list: verdict in four facts, reasons, signals, GPUs, processes, history, actions. */
import { useEffect, useRef } from "preact/hooks";
import type { Answer } from "../../../api/client";
import { type ResourceView, useResource } from "../../../api/resources";
import { SignatureBadge } from "../../../components/badge";
import { DataState } from "../../../components/panel";
import { type WorkloadKey, workloadParameters } from "../../../components/workload-link";
import { fmt, language } from "../../../i18n";
import { hasLedger } from "../../../state/session";
import { texts } from "../texts";
import { Actions } from "./actions";
import { Facts } from "./facts";
import { Gpus } from "./gpus";
import { Advice, Costs, History } from "./history";
import { Processes } from "./processes";
import { Reasons } from "./reasons";
import { type Action, Reclaim, RestoreButton, useActions, useDecision } from "./reclaim";
import { Signals } from "./signals";
import type { HistoryData } from "./timeline";
import "./detail.css";

export type DetailData = Answer<"/api/v1/workloads/{kind}/{namespace}/{name}">;

interface Props {
  readonly of: WorkloadKey;
  readonly onClose: () => void;
}

export function Detail({ of: key, onClose }: Props) {
  const detail = useResource("/api/v1/workloads/{kind}/{namespace}/{name}", { ...workloadParameters(key), language: language.value });
  const heading = useRef<HTMLHeadingElement>(null);
  // On a narrow screen the detail covers the list: start at its top.
  useEffect(() => heading.current?.scrollIntoView({ block: "nearest" }), []);
  return (
    <aside class="detail" aria-label={key.name}>
      <header class="detail-head">
        <div class="detail-path">
          <span>{[key.cluster, key.namespace, key.kind].filter(Boolean).join(" / ")}</span>
          <button type="button" class="button button-quiet" onClick={onClose}>{texts("close")} <kbd aria-hidden="true">Esc</kbd></button>
        </div>
        <div class="detail-title">
          <h2 ref={heading}>{key.name}</h2>
          {detail.data && <SignatureBadge signature={detail.data.workload.signature} />}
        </div>
        {detail.data && <Subtitle data={detail.data} />}
      </header>
      <Content of={key} detail={detail} />
    </aside>
  );
}

function Content({ of: key, detail }: { of: WorkloadKey; detail: ResourceView<DetailData> }) {
  const isOn = hasLedger.value;
  const history = useResource(isOn ? "/api/v1/workloads/{kind}/{namespace}/{name}/history" : null, workloadParameters(key));
  const plan = useDecision(key);
  const actions = useActions(key);
  if (detail.problem?.status === 404) {
    return <Gone history={history} actions={actions} />;
  }
  return (
    <DataState resource={detail} lines={10}>
      {(data) => (
        <>
          <Facts data={data} />
          <Reasons data={data} />
          <Actions of={key} data={data} history={history} reclaim={{ ...plan, actions }} />
          <Signals of={key} data={data} />
          <Gpus data={data} />
          <Processes of={key} />
          <Reclaim mode={plan.mode} decision={plan.decision} />
          <Advice history={history} />
          <Costs history={history} />
          {isOn !== false && <History history={history} actions={actions} />}
        </>
      )}
    </DataState>
  );
}

/** A workload without GPUs: what was done to it, what it cost, and how to get it back. */
function Gone({ history, actions }: { history: ResourceView<HistoryData>; actions: readonly Action[] }) {
  const suspended = actions.find((one) => one.is_restorable);
  return (
    <>
      <div class="gone">
        <strong>{texts("not-there")}</strong>
        <p class="secondary">
          {suspended?.acted_at ? texts("not-there-suspended", { time: fmt.time(new Date(suspended.acted_at), "short"), by: suspended.by }) : texts("not-there-hint")}
        </p>
        <RestoreButton actions={actions} />
      </div>
      {history.data && <Costs history={history} />}
      {history.data && <History history={history} actions={actions} />}
    </>
  );
}

function Subtitle({ data }: { data: DetailData }) {
  const { workload, nodes } = data;
  const models = workload.models.map((model) => model.replace(/^NVIDIA\s+/, "")).join(", ") || "GPU";
  const where = nodes.length === 1 ? texts("on-node", { node: nodes[0]! }) : texts("on-nodes", { n: workload.nodes_total });
  return (
    <p class="detail-subtitle">
      {[workload.users.join(", "), `${fmt.gpus(workload.gpus)} × ${models} ${where}`].filter(Boolean).join(" · ")}
    </p>
  );
}
