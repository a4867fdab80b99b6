/** The MIG instances of a GPU to scale: seven compute slices wide, coloured by what their holder does. */
import { fmt } from "../../i18n";
import { ALL_SLICES, layOutInstances, type NodeGpu, type Slot } from "./fleet";
import { texts } from "./texts";

export function MigLayout({ gpu }: { gpu: NodeGpu }) {
  const slots = layOutInstances(gpu.instances);
  const used = gpu.instances.reduce((sum, each) => sum + (each.compute_slices ?? 0), 0);
  return (
    <figure class="mig">
      <figcaption title={texts("mig-hint")}>{texts("mig", { n: fmt.number(used) })}</figcaption>
      <div class="mig-slots">
        {slots.map((slot) => <MigSlot key={slot.begin} slot={slot} gpu={gpu} />)}
      </div>
    </figure>
  );
}

function MigSlot({ slot, gpu }: { slot: Slot; gpu: NodeGpu }) {
  const { instance } = slot;
  const holder = instance && gpu.holders.find((each) => each.instance === instance.instance);
  const kind = !instance || instance.is_free ? "free" : (holder?.verdict ?? "unknown");
  const name = !instance ? texts("mig-free") : instance.profile || instance.instance;
  const who = instance ? (holder ? `${holder.workload.namespace}/${holder.workload.name}` : instance.is_free ? texts("mig-unused") : "") : "";
  return (
    <span class={`mig-slot mig-${kind}`} style={{ width: `${(slot.slices / ALL_SLICES) * 100}%` }} title={[name, who].filter(Boolean).join(" · ")}>
      <span>{name}</span>
    </span>
  );
}
