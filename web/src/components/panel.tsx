/** A panel with a title and the five states of its data: loading, empty, error, stale, not permitted. */
import type { ComponentChildren } from "preact";
import type { Resource } from "../api/resources";
import { fmt, t } from "../i18n";
import { identity } from "../state/session";

interface StateProps<T> {
  readonly resource: Resource<T> & { readonly refresh?: () => void };
  /** Whether the data has nothing to show, and what to say then. */
  readonly isEmpty?: (data: T) => boolean;
  readonly empty?: ComponentChildren;
  /** Lines of the placeholder while loading. */
  readonly lines?: number;
  readonly children: (data: T) => ComponentChildren;
}

export function DataState<T>({ resource, isEmpty, empty, lines = 4, children }: StateProps<T>) {
  const { status, data } = resource;
  if (status === "forbidden") return <Forbidden />;
  if (data === undefined) return status === "error" ? <Failure resource={resource} /> : <Placeholder lines={lines} />;
  return (
    <>
      {status === "stale" && <StaleNote resource={resource} />}
      {isEmpty?.(data) ? <p class="state state-empty">{empty ?? t("panel.empty")}</p> : children(data)}
    </>
  );
}

interface PanelProps<T> extends StateProps<T> {
  readonly title: ComponentChildren;
  /** At the right of the title. */
  readonly aside?: ComponentChildren;
  readonly class?: string;
}

export function Panel<T>({ title, aside, class: className = "", ...state }: PanelProps<T>) {
  return (
    <section class={`panel ${className}`}>
      <PanelHead title={title} aside={aside} />
      <DataState {...state} />
    </section>
  );
}

export function PanelHead({ title, aside }: { title: ComponentChildren; aside?: ComponentChildren }) {
  return (
    <header class="panel-head">
      <h2>{title}</h2>
      {aside && <div class="panel-aside">{aside}</div>}
    </header>
  );
}

function Placeholder({ lines }: { lines: number }) {
  return (
    <div class="state state-loading" role="status" aria-label={t("panel.loading")}>
      {Array.from({ length: lines }, (_, index) => (
        <i key={index} class="placeholder-line" />
      ))}
    </div>
  );
}

function Failure<T>({ resource }: { resource: Resource<T> & { readonly refresh?: () => void } }) {
  const { problem, refresh } = resource;
  const isNotReady = problem?.kind === "not-ready";
  const text = problem?.status === 0 ? t("panel.offline") : isNotReady ? t("panel.not-ready") : problem?.message;
  return (
    <div class="state state-error" role="alert">
      {!isNotReady && problem?.status !== 0 && <strong>{t("panel.error")}</strong>}
      <span>{text}</span>
      {refresh && !isNotReady && <button class="button" onClick={refresh}>{t("panel.retry")}</button>}
    </div>
  );
}

function StaleNote<T>({ resource }: { resource: Resource<T> }) {
  const at = new Date(resource.readAt);
  return (
    <p class="state-stale" role="status" title={fmt.utc(at)}>
      {t("panel.stale", { time: fmt.time(at, "time") })}
    </p>
  );
}

function Forbidden() {
  return (
    <div class="state state-forbidden">
      <strong>{t("panel.forbidden")}</strong>
      <span>{t("panel.forbidden-hint", { role: identity.value?.role ?? "-" })}</span>
    </div>
  );
}
