// The command palette: what it offers, and in which order.

import type { Found } from "../api/fleet";
import { commandOf } from "./shell";

export type EntryGroup = "page" | "action" | "application" | "logs" | "cluster" | "source" | "policy" | "placement";

/** A line of the palette: an address to open, or an action. */
export interface Entry {
  key: string;
  group: EntryGroup;
  title: string;
  detail: string;
  /** Other texts that find the entry. */
  words: string[];
  to?: string;
  run?: () => void;
}

/** The largest number of lines that the palette shows. */
export const maxEntries = 50;

const groupOrder: EntryGroup[] = ["page", "application", "logs", "cluster", "source", "policy", "placement", "action"];
/** Ranks of a term: at the start of the title, of a word of it, within it, or elsewhere. */
const [atStart, atWord, within, elsewhere] = [0, 1, 2, 3];

/** What the palette says about found objects, and where they are. */
export interface EntryTexts {
  stateOf(state: string): string;
  addressOf(...path: string[]): string;
  /** The labels of the actions of a Source. */
  actionOf(action: SourceAction): string;
  /** What an entry without a page does: it copies a command. */
  copyOf(command: string): string;
  copy(command: string): void;
}

export type SourceAction = "sync" | "suspend" | "resume";

/** Words of the palette that no object has in its name: they choose among the entries of an object. */
const actionWords = new Set(["logs", "sync", "suspend", "resume"]);

/** Returns the words of a query by which the hub searches. */
export function searchText(query: string): string {
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  const names = terms.filter((term) => !actionWords.has(term));
  return (names.length > 0 ? names : terms).slice(0, 10).join(" ");
}

/** Returns the entries of found objects: their pages, logs and actions. */
export function foundEntries(found: readonly Found[], texts: EntryTexts): Entry[] {
  return found.flatMap((f) => entriesOf(f, texts));
}

function entriesOf(f: Found, texts: EntryTexts): Entry[] {
  const { kind, namespace = "", name } = f;
  const key = `${kind}/${namespace}/${name}`;
  const title = f.title ?? name;
  const join = (...parts: string[]) => parts.filter(Boolean).join(" · ");
  switch (kind) {
    case "Cluster":
      return [{ key, group: "cluster", title, detail: texts.stateOf(f.detail ?? ""), words: [], to: texts.addressOf("clusters", name) }];
    case "Bundle":
      return [
        { key, group: "application", title, detail: namespace, words: [name], to: texts.addressOf("applications", namespace, name) },
        { key: key + "/logs", group: "logs", title, detail: namespace, words: [name, "logs"], to: texts.addressOf("logs", namespace, kind, name) },
      ];
    case "ClusterBundle":
      return [{ key, group: "application", title, detail: "", words: [name], to: texts.addressOf("applications", "-", name) }];
    case "Source": {
      const page = texts.addressOf("sources", namespace, name);
      const actions: SourceAction[] = f.detail === "Suspended" ? ["resume"] : ["sync", "suspend"];
      return [
        { key, group: "source", title, detail: namespace, words: [], to: page },
        ...actions.map((a): Entry => ({ key: `${key}/${a}`, group: "action", title, detail: join(texts.actionOf(a), namespace), words: [a], to: `${page}?act=${a}` })),
      ];
    }
    case "PropagationPolicy":
    case "ClusterPropagationPolicy": {
      const filter = namespace === "" ? `policy:${name}` : `policy:${name} ns:${namespace}`;
      return [{ key, group: "policy", title, detail: join(kind, namespace), words: [], to: `${texts.addressOf("applications")}?q=${encodeURIComponent(filter)}` }];
    }
  }
  const command = commandOf("kubectl", "get", kind.toLowerCase() + ".atoll.dev", name, ...(namespace === "" ? [] : ["-n", namespace]), "-o", "yaml") ?? "";
  const group = kind.endsWith("Placement") ? "placement" : "policy";
  return [{ key, group, title, detail: join(texts.copyOf(command), namespace), words: [kind], run: () => texts.copy(command) }];
}

/** Returns the entries that have each term of a query, the best ones first. Without a term there are pages and actions. */
export function findEntries(entries: Entry[], query: string): Entry[] {
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 10);
  if (terms.length === 0) return entries.filter((e) => e.group === "page" || e.group === "action").slice(0, maxEntries);
  let found: { entry: Entry; rank: number }[] = [];
  for (const entry of entries) {
    const rank = rankOf(entry, terms);
    if (rank === undefined) continue;
    found.push({ entry, rank });
    if (found.length >= 4 * maxEntries) found = sortFound(found); // a large fleet needs no list of all that fit
  }
  return sortFound(found).map((f) => f.entry);
}

function sortFound(found: { entry: Entry; rank: number }[]): { entry: Entry; rank: number }[] {
  found.sort((a, b) => a.rank - b.rank || groupOrder.indexOf(a.entry.group) - groupOrder.indexOf(b.entry.group) || a.entry.title.length - b.entry.title.length || compareText(a.entry.title, b.entry.title) || compareText(a.entry.key, b.entry.key));
  return found.slice(0, maxEntries);
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function rankOf(e: Entry, terms: string[]): number | undefined {
  const title = e.title.toLowerCase();
  let sum = title === terms.join(" ") ? -1 : 0;
  for (const term of terms) {
    const rank = rankInTitle(title, term) ?? (e.detail.toLowerCase().includes(term) || e.words.some((w) => w.toLowerCase().includes(term)) ? elsewhere : undefined);
    if (rank === undefined) return undefined;
    sum += rank;
  }
  return sum;
}

function rankInTitle(title: string, term: string): number | undefined {
  const at = title.indexOf(term);
  if (at <= 0) return at === 0 ? atStart : undefined;
  return /[^\p{L}\p{N}]/u.test(title[at - 1]!) ? atWord : within;
}
