/** Every page is one line here, and a folder beside this file. A page is loaded when it is first opened. */
import type { ComponentType } from "preact";
import type { TextKey } from "../i18n";

export interface Page {
  /** The first segment of the address. */
  readonly name: string;
  /** The word in the navigation; null: the page is not listed there. */
  readonly label: TextKey | null;
  /** The key that opens it. */
  readonly key: string | null;
  /** `bare`: without the top bar, as for the wall and the sign-in. */
  readonly layout: "shell" | "bare";
  /** Whether the top bar offers the last days to choose from. */
  readonly hasPeriod: boolean;
  readonly load: () => Promise<{ default: ComponentType }>;
}

type Options = Partial<Pick<Page, "layout" | "hasPeriod">>;

const page = (name: string, label: TextKey | null, key: string | null, load: Page["load"], options: Options = {}): Page => ({
  name, label, key, load, layout: "shell", hasPeriod: true, ...options,
});

export const PAGES: readonly Page[] = [
  page("overview", "nav.overview", "o", () => import("./overview/overview")),
  page("workloads", "nav.workloads", "w", () => import("./workloads/workloads")),
  page("teams", "nav.teams", "t", () => import("./teams/teams"), { hasPeriod: false }),
  page("nodes", "nav.nodes", "n", () => import("./nodes/nodes"), { hasPeriod: false }),
  page("actions", "nav.actions", "a", () => import("./actions/actions")),
  page("policies", "nav.policies", "p", () => import("./policies/policies"), { hasPeriod: false }),
  page("sources", "nav.sources", "s", () => import("./sources/sources"), { hasPeriod: false }),
  page("wall", null, null, () => import("./wall/wall"), { layout: "bare" }),
  page("sign-in", null, null, () => import("./sign-in/sign-in"), { layout: "bare" }),
];

export const FIRST_PAGE = PAGES[0]!;
export const findPage = (name: string): Page | undefined => (name ? PAGES.find((each) => each.name === name) : FIRST_PAGE);
