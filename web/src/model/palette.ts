// The command palette: what it offers, and in which order.

import type { AppRow } from "./application";
import type { ClusterRow } from "./cluster";

export type EntryGroup = "page" | "action" | "application" | "logs" | "cluster";

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

const groupOrder: EntryGroup[] = ["page", "action", "application", "logs", "cluster"];
/** Ranks of a term: at the start of the title, of a word of it, within it, or elsewhere. */
const [atStart, atWord, within, elsewhere] = [0, 1, 2, 3];

/** Returns the entries of clusters. The address of each is that of its page. */
export function clusterEntries(rows: ClusterRow[], addressOf: (name: string) => string, statusText: (status: string) => string): Entry[] {
  return rows.map((r) => ({
    key: "cluster/" + r.name, group: "cluster", title: r.name, detail: [r.region, statusText(r.status)].filter(Boolean).join(" · "),
    words: [r.version, ...r.labels.map(([key, value]) => `${key}=${value}`)], to: addressOf(r.name),
  }));
}

/** Returns the entries of applications: the page of each, and the logs of those in a namespace. */
export function applicationEntries(rows: AppRow[], addressOf: (view: "applications" | "logs", r: AppRow) => string, statusText: (status: string) => string): Entry[] {
  const page = (r: AppRow): Entry => ({
    key: "application/" + r.key, group: "application", title: r.title, detail: [r.namespace, statusText(r.status)].filter(Boolean).join(" · "), words: [r.name, r.source], to: addressOf("applications", r),
  });
  const logs = (r: AppRow): Entry => ({ key: "logs/" + r.key, group: "logs", title: r.title, detail: r.namespace, words: [r.name, "logs"], to: addressOf("logs", r) });
  return rows.flatMap((r) => (r.namespace ? [page(r), logs(r)] : [page(r)]));
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
