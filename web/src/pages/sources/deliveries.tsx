/** Notices and control calls: waiting, delivered, failed. An operator can retry what failed. */
import { useState } from "preact/hooks";
import { isAborted, Problem, write } from "../../api/client";
import { refreshMatching, type ResourceView, useResource } from "../../api/resources";
import { Badge, type Tone } from "../../components/badge";
import { DataState, Panel, PanelHead } from "../../components/panel";
import { Segments } from "../../components/segments";
import { Time } from "../../components/time";
import { showToast } from "../../components/toast";
import type { Answer } from "../../api/client";
import { fmt } from "../../i18n";
import { changeQuery, route } from "../../router";
import { isOperator } from "../../state/session";
import { Pair } from "./data-tab";
import type { Health } from "./source-data";
import { texts } from "./texts";

type Delivery = Answer<"/api/v1/deliveries">["items"][number];

const STATES = ["all", "pending", "done", "dead"] as const;
const TONES: Readonly<Record<Delivery["state"], Tone>> = { pending: "plain", done: "good", dead: "fault" };

export function Deliveries({ health }: { health: ResourceView<Health> }) {
  const state = STATES.find((each) => each === route.value.query["state"]) ?? "all";
  const deliveries = useResource("/api/v1/deliveries", { state: state === "all" ? "" : state, limit: 200 });
  const hasDead = deliveries.data?.items.some((each) => each.state === "dead") ?? false;
  return (
    <>
      <section class="panel">
        <PanelHead
          title={texts("deliveries")}
          aside={
            <Segments
              label={texts("filter-state")}
              value={state}
              choices={STATES.map((value) => ({ value, text: texts(value === "all" ? "all-states" : `state-${value}`) }))}
              onChoose={(value) => changeQuery({ state: value === "all" ? "" : value }, { replace: true })}
            />
          }
        />
        {hasDead && !isOperator.value && <p class="state small">{texts("needs-operator")}</p>}
        <DataState resource={deliveries} isEmpty={(data) => data.items.length === 0} empty={<NoDeliveries health={health.data} />}>
          {(data) => <DeliveryTable items={data.items} />}
        </DataState>
      </section>
      <Panel class="sources-below" title={texts("alerts")} resource={health} lines={1}>{(data) => <Alerts health={data} />}</Panel>
    </>
  );
}

function NoDeliveries({ health }: { health: Health | undefined }) {
  const targets = health?.deliveries["targets"];
  return <>{texts(Array.isArray(targets) && targets.length === 0 ? "no-channel" : "no-deliveries")}</>;
}

function Alerts({ health }: { health: Health }) {
  const alerts = health.deliveries["alerts"] as { firing?: number; alertmanagers?: number } | undefined;
  return (
    <dl class="pairs">
      <Pair name={texts("alerts")}>{texts("alerts-value", { n: alerts?.firing ?? 0, m: alerts?.alertmanagers ?? 0 })}</Pair>
    </dl>
  );
}

function DeliveryTable({ items }: { items: readonly Delivery[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={texts("deliveries")}>
      <table class="rows">
        <thead>
          <tr>
            <th>{texts("created")}</th>
            <th>{texts("kind")}</th>
            <th>{texts("receiver")}</th>
            <th>{texts("state")}</th>
            <th class="number">{texts("attempts")}</th>
            <th>{texts("next")}</th>
            <th>{texts("error")}</th>
            <th />
          </tr>
        </thead>
        <tbody>{items.map((each) => <DeliveryRow key={each.id} delivery={each} />)}</tbody>
      </table>
    </div>
  );
}

function DeliveryRow({ delivery }: { delivery: Delivery }) {
  return (
    <tr>
      <td class="nowrap">{delivery.created_at ? <Time at={delivery.created_at} /> : "–"}</td>
      <td>{delivery.kind}</td>
      <td>
        {delivery.target}
        {delivery.host && <small class="block secondary">{delivery.host}</small>}
      </td>
      <td><Badge tone={TONES[delivery.state]}>{texts(`state-${delivery.state}`)}</Badge></td>
      <td class="number">{fmt.number(delivery.attempts)}</td>
      <td class="nowrap delivery-next">{delivery.state === "pending" && delivery.next_at ? <Time at={delivery.next_at} /> : "–"}</td>
      <td class="delivery-error">{delivery.error}</td>
      <td class="number">{delivery.state === "dead" && <Retry id={delivery.id} />}</td>
    </tr>
  );
}

function Retry({ id }: { id: number }) {
  const [isSending, setSending] = useState(false);
  const retry = async () => {
    setSending(true);
    try {
      await write("post", "/api/v1/deliveries/{number}/retry", { number: id });
      showToast(texts("retried", { id }));
    } catch (error) {
      if (!isAborted(error)) showToast(texts("retry-failed", { id, reason: error instanceof Problem ? error.message : String(error) }), "fault");
    }
    setSending(false);
    refreshMatching("/api/v1/deliveries");
  };
  return (
    <button type="button" class="button" disabled={isSending || !isOperator.value} title={isOperator.value ? undefined : texts("needs-operator")} onClick={() => void retry()}>
      {texts("retry")}
    </button>
  );
}
