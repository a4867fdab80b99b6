/** What was found where, what is missing, and the state of analyzer and ledger. */
import type { ComponentChildren } from "preact";
import type { ResourceView } from "../../api/resources";
import { useResource } from "../../api/resources";
import { Badge, type Tone } from "../../components/badge";
import { DataState, Panel, PanelHead } from "../../components/panel";
import { Time } from "../../components/time";
import { fmt, language } from "../../i18n";
import { type Health, readFailures, readSources, type Scheme, type Source } from "./source-data";
import { texts } from "./texts";

interface Props {
  readonly health: ResourceView<Health>;
  readonly described: ResourceView<unknown>;
}

export function DataTab({ health, described }: Props) {
  return (
    <div class="sources-grid">
      <div class="sources-column">
        <Problems />
        <Panel title={texts("found")} resource={described}>
          {(data) => readSources(data).map((source) => <Found key={source.url} source={source} />)}
        </Panel>
        <Failures described={described} />
      </div>
      <div class="sources-column">
        <Panel title={texts("coverage")} resource={health}>{(data) => <Coverage health={data} />}</Panel>
        <Panel title={texts("analyzer")} resource={health}>{(data) => <Analyzer health={data} />}</Panel>
        <Panel title={texts("ledger")} resource={health}>{(data) => <Ledger health={data} />}</Panel>
      </div>
    </div>
  );
}

const TONES: Readonly<Record<string, Tone>> = { critical: "fault", warning: "idle", info: "plain" };

/** In the words of the overview, all of them. */
function Problems() {
  const overview = useResource("/api/v1/overview", { days: 7, language: language.value });
  return (
    <Panel title={texts("problems")} resource={overview} lines={2} isEmpty={(data) => data.data.problems.length === 0} empty={texts("no-problems")}>
      {(data) => (
        <ul class="problem-list">
          {data.data.problems.map((problem) => (
            <li key={problem.code}>
              <Badge tone={TONES[problem.level] ?? "plain"}>{texts(`level-${problem.level}`)}</Badge>
              <span>{problem.text}</span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Found({ source }: { source: Source }) {
  return (
    <div class="found">
      <dl class="pairs">
        <Pair name={texts("engine")}>{source.isScraper ? texts("own-scraper") : `${source.engine} ${source.version}`.trim() || "–"}</Pair>
        {source.url && <Pair name={texts("address")}>{source.url}</Pair>}
        {source.origins.length > 0 && <Pair name={texts("origin")}>{source.origins.join(", ")}</Pair>}
        {source.intervals.length > 0 && <Pair name={texts("interval")}>{source.intervals.map((each) => fmt.duration(each.seconds)).join(", ")}</Pair>}
        {source.series !== null && <Pair name={texts("series")}>{fmt.number(source.series)}</Pair>}
      </dl>
      {source.error && <p class="fault-text">{source.error}</p>}
      {source.schemes.map((scheme) => <SchemeDetails key={scheme.name} scheme={scheme} isOpen={source.schemes.length === 1} />)}
    </div>
  );
}

const KNOWN_SCHEMES = ["native", "dcgm", "hami"] as const;

function schemeName(name: string): string {
  const known = KNOWN_SCHEMES.find((each) => name.startsWith(each));
  return known ? texts(`scheme-${known}`) : name;
}

function SchemeDetails({ scheme, isOpen }: { scheme: Scheme; isOpen: boolean }) {
  const labels = Object.entries(scheme.labels);
  return (
    <details class="scheme" open={isOpen}>
      <summary>
        <strong>{schemeName(scheme.name)}</strong>
        <span class="secondary">{texts("metrics", { n: scheme.metrics.length })}</span>
      </summary>
      <dl class="pairs">
        <Pair name={texts("labels")}>
          {labels.length ? labels.map(([name, value]) => <code key={name}>{name === value ? name : `${name} = ${value}`}</code>) : texts("as-named")}
        </Pair>
      </dl>
      <ul class="metric-names">
        {scheme.metrics.map((name) => <li key={name}><code>{name}</code></li>)}
      </ul>
    </details>
  );
}

function Failures({ described }: { described: ResourceView<unknown> }) {
  const failures = readFailures(described.data);
  if (failures.length === 0) return null;
  return (
    <section class="panel">
      <PanelHead title={texts("failures")} />
      <DataState resource={described}>
        {() => (
          <ul class="failure-list">
            {failures.map((each) => (
              <li key={each.what}>
                <code>{each.what}</code>
                <span>{each.reason}</span>
              </li>
            ))}
          </ul>
        )}
      </DataState>
    </section>
  );
}

const DOUBTS = ["stale", "source", "no-data", "coverage", "sparse", "partial", "power"] as const;

function doubtName(word: string): string {
  const known = DOUBTS.find((each) => each === word);
  return known ? texts(`doubt-${known}`) : word;
}

function Coverage({ health }: { health: Health }) {
  const reasons = Object.entries(health.unknown).sort((one, other) => other[1] - one[1]);
  const unknown = reasons.reduce((sum, [, count]) => sum + count, 0);
  const judged = Math.max(0, health.allocations - unknown);
  return (
    <>
      <div class="stacked stacked-large" role="img" aria-label={texts("samples-label", { judged, unknown })}>
        {judged > 0 && <i class="fill-active" style={{ flexGrow: judged }} />}
        {unknown > 0 && <i class="fill-unknown" style={{ flexGrow: unknown }} />}
      </div>
      <p class="coverage-legend">
        <span><i class="swatch fill-active" aria-hidden="true" /><strong>{fmt.number(judged)}</strong> {texts("judged")}</span>
        <span><i class="swatch fill-unknown" aria-hidden="true" /><strong>{fmt.number(unknown)}</strong> {texts("not-judged")}</span>
      </p>
      {reasons.length > 0 && (
        <table class="rows">
          <thead>
            <tr>
              <th>{texts("reason")}</th>
              <th class="number">{texts("allocations")}</th>
            </tr>
          </thead>
          <tbody>
            {reasons.map(([word, count]) => (
              <tr key={word}>
                <td>{doubtName(word)}</td>
                <td class="number">{fmt.number(count)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function Analyzer({ health }: { health: Health }) {
  const { cycles, replica } = health;
  return (
    <dl class="pairs">
      <Pair name={texts("version")}>{health.version}</Pair>
      <Pair name={texts("cycles")}>{texts("cycles-value", { n: fmt.number(cycles.finished), failed: fmt.number(cycles.failed) })}</Pair>
      {cycles.last_ended_at && (
        <Pair name={texts("last-cycle")}>
          <Time at={cycles.last_ended_at} style="time" /> · {texts("last-cycle-value", { seconds: fmt.number(cycles.last_seconds ?? 0, 1) })}
        </Pair>
      )}
      {cycles.last_error && <Pair name={texts("last-error")}><span class="fault-text">{cycles.last_error}</span></Pair>}
      {replica && <Pair name={texts("role")}>{replica.role === "leader" ? texts("role-leader") : texts("role-reader", { leader: replica.leader || "–" })}</Pair>}
      <Pair name={texts("reloads")}>{texts("reloads-value", { ok: Number(health.settings_reloads["ok"] ?? 0), refused: Number(health.settings_reloads["refused"] ?? 0) })}</Pair>
    </dl>
  );
}

function Ledger({ health }: { health: Health }) {
  const ledger = health.ledger as Readonly<Record<string, unknown>> | null;
  if (!ledger) return <p class="state">{texts("ledger-off")}</p>;
  const lost = Number(ledger["lost_cycles"] ?? 0) + Number(ledger["refused_cycles"] ?? 0);
  const error = String(ledger["error"] ?? "");
  return (
    <dl class="pairs">
      <Pair name={texts("ledger-state")}>
        <Badge tone={ledger["is_ready"] ? "good" : "fault"}>{texts(ledger["is_ready"] ? "ledger-ready" : "ledger-not-ready")}</Badge>
      </Pair>
      {typeof ledger["url"] === "string" && <Pair name={texts("ledger-where")}>{ledger["url"].replace(/^sqlite:\/{3}/, "")}</Pair>}
      {typeof ledger["booked_at"] === "number" && <Pair name={texts("ledger-until")}><Time at={ledger["booked_at"] * 1000} style="full" /></Pair>}
      {Number(ledger["buffered_cycles"] ?? 0) > 0 && <Pair name={texts("ledger-buffered")}>{texts("ledger-buffered-value", { n: Number(ledger["buffered_cycles"]) })}</Pair>}
      {lost > 0 && <Pair name={texts("ledger-lost")}>{texts("ledger-buffered-value", { n: lost })}</Pair>}
      {error && <Pair name={texts("last-error")}><span class="fault-text">{error}</span></Pair>}
    </dl>
  );
}

export function Pair({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
