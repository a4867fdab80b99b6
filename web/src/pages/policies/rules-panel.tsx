/** The policies in effect, in the order in which they are tried, with where they come from and whether they are valid. */
import { useResource } from "../../api/resources";
import { Badge } from "../../components/badge";
import { Panel } from "../../components/panel";
import { fmt, language } from "../../i18n";
import { listRules, numberOf, type PolicyPage, type Rule, textOf } from "./rules";
import { texts } from "./texts";

const ACTIONS = ["notify", "webhook", "scale-to-keep", "suspend", "evict"] as const;
const CLASSES = ["interactive", "batch", "serving"] as const;
const CONDITIONS = ["clusters", "namespaces", "labels", "kinds", "models", "classes", "priority_classes"] as const;

export function RulesPanel() {
  const page = useResource("/api/v1/policies", { language: language.value });
  return (
    <Panel
      class="rules-panel"
      title={<>{texts("policies")} <small class="secondary">{texts("policies-hint")}</small></>}
      aside={page.data && <Origin page={page.data} />}
      resource={page}
      lines={5}
    >
      {(data) => (
        <>
          {!data.is_valid && <div class="rules-error" role="alert"><strong>{texts("refused")}</strong> {texts("refused-hint")}<pre>{data.error}</pre></div>}
          <RuleTable rules={listRules(data)} />
        </>
      )}
    </Panel>
  );
}

function Origin({ page }: { page: PolicyPage }) {
  return (
    <span class="rules-origin">
      <span class="secondary small" title={page.file}>{page.file ? texts("policies-file", { file: page.file.split("/").at(-1) ?? page.file }) : texts("policies-no-file")}</span>
      {page.file && <Badge tone={page.is_valid ? "good" : "fault"}>{texts(page.is_valid ? "valid" : "refused")}</Badge>}
    </span>
  );
}

function RuleTable({ rules }: { rules: readonly Rule[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={texts("policies")}>
      <table class="rows rules-table">
        <thead>
          <tr>
            <th scope="col">{texts("col-policy")}</th>
            <th scope="col">{texts("col-match")}</th>
            <th scope="col">{texts("col-action")}</th>
            <th scope="col" class="number">{texts("col-window")}</th>
            <th scope="col" class="number">{texts("col-grace")}</th>
            <th scope="col" class="number">{texts("col-warnings")}</th>
            <th scope="col" class="number">{texts("col-chance")}</th>
            <th scope="col">{texts("col-limits")}</th>
            <th scope="col">{texts("col-hours-of")}</th>
          </tr>
        </thead>
        <tbody>{rules.map((rule, index) => <RuleRow key={`${rule.isBuiltIn} ${rule.name}`} rule={rule} isFirst={index === 0} />)}</tbody>
      </table>
    </div>
  );
}

function RuleRow({ rule, isFirst }: { rule: Rule; isFirst: boolean }) {
  const { fields } = rule;
  const inherited = <span class="secondary" title={texts("inherited")}>{rule.isBuiltIn ? "–" : texts("inherited")}</span>;
  const seconds = (name: string) => (numberOf(fields, name) === null ? inherited : fmt.duration(numberOf(fields, name)!));
  const action = ACTIONS.find((each) => each === (fields["action"] ?? "notify"));
  const isActing = action === "suspend" || action === "evict" || action === "scale-to-keep";
  const chance = numberOf(fields, "highest_chance");
  const warnings = numberOf(fields, "warnings");
  return (
    <tr class={rule.isBuiltIn ? "rule-built-in" : ""}>
      <td class="nowrap"><strong>{rule.isBuiltIn ? className(rule.name) : rule.name}</strong>{rule.isBuiltIn && <small class="secondary"> {texts("built-in")}</small>}</td>
      <td class="rule-match"><Match rule={rule} isFirst={isFirst} /></td>
      <td>{action ? <Badge tone={isActing ? "idle" : "plain"}>{texts(`action-${action}`)}</Badge> : inherited}</td>
      <td class="number">{seconds("window")}</td>
      <td class="number">{seconds("grace")}</td>
      <td class="number">{warnings === null ? inherited : fmt.number(warnings)}</td>
      <td class="number">{chance === null ? inherited : chance >= 1 ? texts("chance-any") : fmt.percent(chance, 0)}</td>
      <td class="rule-limits"><Limits of={fields["limits"] as Record<string, number> | undefined} /></td>
      <td class="rule-hours">{hoursOf(rule)}</td>
    </tr>
  );
}

function className(name: string): string {
  const known = CLASSES.find((each) => each === name);
  return known ? texts(`class-${known}`) : name;
}

function Match({ rule, isFirst }: { rule: Rule; isFirst: boolean }) {
  if (!rule.match.length) return <span class="secondary">{texts(isFirst ? "match-all-first" : "match-all")}</span>;
  return (
    <>
      {rule.match.map(([name, words]) => {
        const known = CONDITIONS.find((each) => each === name);
        return <span key={name}><span class="secondary">{known ? texts(`match-${known}`) : name}</span> {name === "classes" ? className(words) : words}</span>;
      })}
    </>
  );
}

function Limits({ of: limits }: { of: Record<string, number> | undefined }) {
  const { per_cycle: cycle = 5, per_namespace: namespace = 2, per_hour: hour = 20 } = limits ?? {};
  return <span class="secondary">{texts("limits-value", { cycle, namespace, hour })}</span>;
}

function hoursOf({ fields }: Rule): string {
  const words = [];
  if (textOf(fields, "working_hours")) words.push(texts("hours-working", { hours: textOf(fields, "working_hours") }));
  if (textOf(fields, "quiet_hours")) words.push(texts("hours-quiet", { hours: textOf(fields, "quiet_hours") }));
  if (fields["on_pressure"]) words.push(texts("hours-pressure"));
  return words.join(", ") || texts("hours-always");
}
