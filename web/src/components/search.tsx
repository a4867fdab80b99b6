/** The search of the top bar: finds while typing, Enter opens the first match or filters the list. */
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { useResource } from "../api/resources";
import { fmt, t } from "../i18n";
import { makeRows } from "../pages/workloads/rows";
import { findPage } from "../pages";
import { linkTo, navigate } from "../router";
import { cluster } from "../state/filters";
import { findMatches, type Match } from "./search-matches";
import { useShortcuts } from "./shortcuts";
import { WorkloadName, workloadLink } from "./workload-link";

export function Search() {
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(-1);
  // The list is read only while somebody searches; the page of workloads has it already.
  const table = useResource(isOpen ? "/api/v1/workloads/table" : null, { cluster: cluster.value });
  const rows = useMemo(() => (table.data ? makeRows(table.data) : []), [table.data]);
  const matches = useMemo(() => findMatches(rows, text), [rows, text]);
  useEffect(() => setChosen(-1), [text]);
  useShortcuts({ "/": () => input.current?.focus() });

  const leave = () => {
    setText("");
    setOpen(false);
    input.current?.blur();
  };
  const open = (href: string) => {
    navigate(href);
    leave();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") leave();
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && matches.length) {
      event.preventDefault();
      const count = matches.length + 1; // one more place: nothing chosen
      setChosen(((chosen + 1 + (event.key === "ArrowDown" ? 1 : -1) + count) % count) - 1);
    }
  };
  const onSubmit = (event: Event) => {
    event.preventDefault();
    const match = matches[chosen];
    if (match) open(hrefOf(match));
    else if (text.trim()) open(linkTo("workloads", [], { q: text.trim() }));
  };
  const isShown = isOpen && text.trim() !== "";
  return (
    <form class="search" role="search" onSubmit={onSubmit} onFocusCapture={() => setOpen(true)} onBlurCapture={(event) => leavesForm(event) && setOpen(false)}>
      <input
        ref={input}
        type="search"
        role="combobox"
        aria-expanded={isShown}
        aria-controls={id}
        aria-activedescendant={chosen >= 0 ? `${id}-${chosen}` : undefined}
        aria-autocomplete="list"
        autocomplete="off"
        spellcheck={false}
        value={text}
        placeholder={t("search.placeholder")}
        aria-label={t("search.label")}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
      />
      <kbd aria-hidden="true">/</kbd>
      <div id={id} class={isShown ? "search-matches" : "visually-hidden"} role="listbox" aria-label={t("search.label")}>
        {isShown && matches.map((match, index) => (
          <a
            key={hrefOf(match)}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === chosen}
            tabIndex={-1}
            href={hrefOf(match)}
            onClick={leave}
          >
            <MatchText of={match} />
          </a>
        ))}
        {isShown && table.data && !matches.length && <p class="secondary">{t("search.nothing")}</p>}
      </div>
    </form>
  );
}

function leavesForm(event: FocusEvent): boolean {
  return !(event.currentTarget as Element).contains(event.relatedTarget as Node | null);
}

function hrefOf(match: Match): string {
  if (match.type === "workload") return workloadLink(match.key);
  if (match.type === "node" && findPage("nodes")) return linkTo("nodes", [], { node: match.name });
  return linkTo("workloads", [], { q: `${match.type}:${/[\s,]/.test(match.name) ? `"${match.name}"` : match.name}` });
}

function MatchText({ of: match }: { of: Match }) {
  if (match.type === "workload") {
    return (
      <>
        <WorkloadName of={match.key} />
        <small>{match.note}</small>
      </>
    );
  }
  return (
    <>
      <span>{match.name}</span>
      <small>{t(`search.${match.type}`)} · {t("search.workloads", { n: fmt.number(match.count) })}</small>
    </>
  );
}
