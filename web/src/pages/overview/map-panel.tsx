import { useResource } from "../../api/resources";
import { Panel } from "../../components/panel";
import { Segments } from "../../components/segments";
import { type Grouping, GROUPINGS } from "../../map/fleet";
import { GpuMap } from "../../map/gpu-map";
import { changeQuery, route } from "../../router";
import { cluster } from "../../state/filters";
import { texts } from "./texts";

const MAP_HEIGHT = 486;

/** The grouping is in the address, like everything that a link should show. */
function readGrouping(): Grouping {
  const wanted = route.value.query["by"];
  return GROUPINGS.find((each) => each === wanted) ?? "node";
}

export function MapPanel() {
  const map = useResource("/api/v1/gpu-map", { cluster: cluster.value });
  const grouping = readGrouping();
  const choices = GROUPINGS.filter((each) => each !== "cluster" || (map.data?.clusters.length ?? 0) > 1);
  const choose = (next: Grouping) => changeQuery({ by: next === "node" ? "" : next }, { replace: true });
  return (
    <Panel
      title={texts("map-title", { grouping: texts(`by-${grouping}`) })}
      aside={<Segments label={texts("grouping")} choices={choices.map((value) => ({ value, text: texts(`by-${value}`) }))} value={grouping} onChoose={choose} />}
      resource={map}
      lines={8}
      isEmpty={(data) => data.gpus.node.length === 0}
      empty={texts("map-empty")}
    >
      {(data) => <GpuMap data={data} grouping={grouping} maxHeight={MAP_HEIGHT} />}
    </Panel>
  );
}
