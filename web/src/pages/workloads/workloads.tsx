import { useResource } from "../../api/resources";
import { SignatureBadge } from "../../components/badge";
import { Panel } from "../../components/panel";
import { t } from "../../i18n";

export default function Workloads() {
  const list = useResource("/api/v1/workloads", { limit: 100 });
  return (
    <div class="page">
      <Panel title={t("nav.workloads")} resource={list} isEmpty={(data) => data.items.length === 0}>
        {(data) => (
          <table>
            <tbody>
              {data.items.map((row) => (
                <tr key={`${row.cluster}/${row.namespace}/${row.kind}/${row.name}`}>
                  <td>{row.namespace}/{row.kind}/{row.name}</td>
                  <td><SignatureBadge signature={row.signature} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Panel>
    </div>
  );
}
