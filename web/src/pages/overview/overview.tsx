import { useResource } from "../../api/resources";
import { StackedBar } from "../../components/bar";
import { DataState } from "../../components/panel";
import { fmt, t } from "../../i18n";
import { texts } from "./texts";

export default function Overview() {
  const health = useResource("/api/v1/health");
  return (
    <div class="page">
      <DataState resource={health}>
        {(data) => (
          <>
            <h1>{texts.rich("headline", { idle: <em class="idle-number">{fmt.gpus(data.idle_gpus)}</em>, total: fmt.gpus(data.gpus ?? 0) })}</h1>
            <StackedBar
              size="large"
              label={t("nav.overview")}
              parts={[
                { kind: "active", value: data.active_gpus },
                { kind: "idle", value: data.idle_gpus },
                { kind: "unknown", value: data.unknown_gpus },
                { kind: "free", value: data.unallocated_gpus ?? 0 },
              ]}
            />
          </>
        )}
      </DataState>
    </div>
  );
}
