/** Texts in both languages. A text may contain `{name}` and `{name|one|other}`, which chooses by the plural rule. */
import type { ComponentChild } from "preact";
import { language } from "./language";

export type Fields = Readonly<Record<string, string | number>>;
type NodeFields = Readonly<Record<string, ComponentChild>>;

export interface Translator<Key extends string> {
  (key: Key, fields?: Fields): string;
  /** As nodes, so that a field may be an element. Numbers for plurals are given as numbers. */
  rich(key: Key, fields: NodeFields): ComponentChild[];
}

const FIELD = /\{(\w+)(?:\|([^{}|]*)\|([^{}]*))?\}/g;

/** A page calls this with its own texts; Chinese must have every key of English. */
export function defineTexts<Key extends string>(
  en: Readonly<Record<Key, string>>,
  zh: Readonly<Record<NoInfer<Key>, string>>,
): Translator<Key> {
  const pick = (key: Key) => (language.value === "zh" ? zh : en)[key];
  const translate = (key: Key, fields: Fields = {}) => fillNodes(pick(key), fields).join("");
  return Object.assign(translate, { rich: (key: Key, fields: NodeFields) => fillNodes(pick(key), fields) });
}

/** The parts of a text with its fields filled in; what has no field stays as written. */
export function fillNodes(text: string, fields: NodeFields): ComponentChild[] {
  const parts: ComponentChild[] = [];
  let end = 0;
  for (const match of text.matchAll(FIELD)) {
    const [whole, name = "", one, other] = match;
    parts.push(text.slice(end, match.index));
    parts.push(one === undefined ? (name in fields ? fields[name] : whole) : chooseForm(fields[name], one, other ?? ""));
    end = match.index + whole.length;
  }
  parts.push(text.slice(end));
  return parts.filter((part) => part !== "");
}

function chooseForm(value: ComponentChild, one: string, other: string): string {
  return new Intl.PluralRules("en").select(Number(value)) === "one" ? one : other;
}
