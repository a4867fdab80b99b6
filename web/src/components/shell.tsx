/** The top bar: pages, search, cluster, period, freshness of the data, the viewer. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { t } from "../i18n";
import { PAGES, type Page } from "../pages";
import { linkTo, navigate } from "../router";
import { chooseCluster, chooseDays, cluster, days, PERIODS, useClusters } from "../state/filters";
import { Freshness } from "./freshness";
import { Menu, MenuItem } from "./menu";
import { Search } from "./search";
import { useShortcuts } from "./shortcuts";
import { UserMenu } from "./user-menu";

export function Shell({ page, children }: { page: Page | undefined; children: ComponentChildren }) {
  usePageKeys();
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={focusContent}>{t("nav.skip")}</a>
      <header class="topbar">
        <a class="brand" href={linkTo("overview")}>
          <Mark />
          <span>gpusteward</span>
        </a>
        <Navigation page={page} />
        <Search />
        <ClusterMenu />
        {page?.hasPeriod !== false && <PeriodMenu />}
        <Freshness />
        <UserMenu />
      </header>
      <main id="content" tabIndex={-1}>{children}</main>
    </div>
  );
}

function focusContent(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

/** The name of the product as four GPUs. */
function Mark() {
  return (
    <svg class="mark" viewBox="0 0 16 16" aria-hidden="true">
      <rect class="mark-active" x="0" y="0" width="7" height="7" rx="2" />
      <rect class="mark-active" x="9" y="0" width="7" height="7" rx="2" />
      <rect class="mark-idle" x="0" y="9" width="7" height="7" rx="2" />
      <rect class="mark-free" x="9" y="9" width="7" height="7" rx="2" />
    </svg>
  );
}

function Navigation({ page }: { page: Page | undefined }) {
  return (
    <nav class="pages" aria-label={t("nav.label")}>
      {PAGES.filter((each) => each.label).map((each) => (
        <a key={each.name} href={linkTo(each.name)} aria-current={each.name === page?.name ? "page" : undefined}>
          {t(each.label!)}
        </a>
      ))}
    </nav>
  );
}

/** `g` and then the letter of a page. */
function usePageKeys(): void {
  const pressed = useRef(0);
  const keys: Record<string, () => void> = { g: () => (pressed.current = Date.now()) };
  for (const page of PAGES) {
    if (page.key) keys[page.key] = () => Date.now() - pressed.current < 1500 && navigate(linkTo(page.name));
  }
  useShortcuts(keys);
}

function ClusterMenu() {
  const names = useClusters();
  if (names.length < 2 && !cluster.value) return null;
  const choices = ["", ...names];
  return (
    <Menu text={<MenuText text={cluster.value || t("filter.all-clusters")} />} label={`${t("filter.cluster")}: ${cluster.value || t("filter.all-clusters")}`} align="end">
      {(close) =>
        choices.map((name) => (
          <MenuItem key={name} kind="radio" isChecked={name === cluster.value} onChoose={() => (chooseCluster(name), close())}>
            {name || t("filter.all-clusters")}
          </MenuItem>
        ))
      }
    </Menu>
  );
}

function PeriodMenu() {
  return (
    <Menu text={<MenuText text={t("filter.days", { n: days.value })} />} label={`${t("filter.period")}: ${t("filter.days", { n: days.value })}`} align="end">
      {(close) =>
        PERIODS.map((count) => (
          <MenuItem key={count} kind="radio" isChecked={count === days.value} onChoose={() => (chooseDays(count), close())}>
            {t("filter.days", { n: count })}
          </MenuItem>
        ))
      }
    </Menu>
  );
}

export function MenuText({ text }: { text: string }) {
  return (
    <>
      <span>{text}</span>
      <i class="caret" aria-hidden="true" />
    </>
  );
}
