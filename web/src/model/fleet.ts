// What the fleet page shows: rows of its table, tiles and groups of its map, and the question that its address holds.

import type { FleetCounts, FleetGroup, SlimCluster, StateCounts } from "../api/fleet";
import { type ClusterStatus, clusterStatuses } from "./cluster";
import type { WaitingCluster } from "./waits";

/** So many clusters have a tile each. More are shown by groups. */
export const maxTiles = 2000;
/** So many tiles have the names of their clusters on them. */
export const maxNamedTiles = 60;
/** The clusters of a page of the table. */
export const pageSize = 500;
/** The hub takes filters of so many bytes. */
const maxText = 500;

/** Properties by which clusters are grouped, in the order in which a person goes into them. label:KEY is another one. */
export const properties = ["region", "zone", "provider", "set", "version", "agent", "status"] as const;

/** The beginning of the property of a label. */
export const labelPrefix = "label:";

/** What the address holds of the fleet page. */
export interface FleetQuery {
  text: string;
  status: string;
  by: string;
  /** Groups that the clusters are in: a property and its value. */
  groups: [string, string][];
}

export function readFleetQuery(q: URLSearchParams, defaultBy: string): FleetQuery {
  const values = q.getAll("value");
  const groups = q.getAll("group").slice(0, values.length).map((name, i): [string, string] => [name, values[i]!]);
  return { text: q.get("q") ?? "", status: q.get("status") ?? "", by: q.get("by") ?? defaultBy, groups };
}

/** Returns the parameters of the hub's endpoints for a question. */
export function fleetParameters(f: FleetQuery): URLSearchParams {
  const out = new URLSearchParams();
  if (f.text.trim() !== "") out.set("q", cutBytes(f.text, maxText));
  if (f.status !== "") out.set("status", f.status);
  if (f.by !== "") out.set("by", f.by);
  for (const [name, value] of f.groups) {
    out.append("group", name);
    out.append("value", value);
  }
  return out;
}

/** Returns the longest beginning of a text that has so many bytes at most. */
export function cutBytes(text: string, most: number): string {
  let bytes = 0;
  let out = "";
  for (const c of text) {
    bytes += new TextEncoder().encode(c).length;
    if (bytes > most) break;
    out += c;
  }
  return out;
}

/** Returns the address parameters of one group: its clusters, grouped by the next property where they have no tiles. */
export function drillInto(q: URLSearchParams, f: FleetQuery, g: FleetGroup): URLSearchParams {
  const out = new URLSearchParams(q);
  out.append("group", f.by);
  out.append("value", g.value);
  const used = new Set([...f.groups.map(([name]) => name), f.by]);
  out.set("by", g.clusters <= maxTiles ? f.by : (properties.find((p) => !used.has(p)) ?? "status"));
  return out;
}

/** Returns the address parameters without one of the groups. The clusters are grouped by its property again. */
export function leaveGroup(q: URLSearchParams, f: FleetQuery, at: number): URLSearchParams {
  const out = new URLSearchParams(q);
  out.delete("group");
  out.delete("value");
  f.groups.forEach(([name, value], i) => {
    if (i === at) return;
    out.append("group", name);
    out.append("value", value);
  });
  out.set("by", f.groups[at]?.[0] ?? f.by);
  return out;
}

/** The sign of a state on a tile: it differs without its colour, too. */
export const stateSigns: Record<ClusterStatus, string> = { NotReady: "!", Away: "○", Joining: "+", Removing: "−", Unknown: "?", Ready: "✓" };

export interface TileGroup {
  value: string;
  clusters: SlimCluster[];
}

/** Returns the clusters by their groups, in the order of the values. A cluster may be in several groups, or in the one without a name. */
export function tileGroups(clusters: readonly SlimCluster[]): TileGroup[] {
  const byValue = new Map<string, SlimCluster[]>();
  for (const c of clusters) {
    for (const value of c.groups ?? [""]) {
      const own = byValue.get(value);
      if (own) own.push(c);
      else byValue.set(value, [c]);
    }
  }
  return [...byValue].map(([value, own]) => ({ value, clusters: own })).sort((a, b) => compareValues(a.value, b.value));
}

/** Compares values, in which numbers count as numbers. The group without a value is the last one. */
function compareValues(a: string, b: string): number {
  if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
  return a.localeCompare(b, "en", { numeric: true }) || (a < b ? -1 : 1);
}

/** Returns the groups of the counts in the order of their values. */
export function blockGroups(counts: FleetCounts): FleetGroup[] {
  return [...counts.groups].sort((a, b) => compareValues(a.value, b.value));
}

/** Returns the numbers of clusters by state, those with trouble first. */
export function listCounts(states: StateCounts): [ClusterStatus, number][] {
  return clusterStatuses.map((s): [ClusterStatus, number] => [s, states[s] ?? 0]);
}

export function countStates(clusters: readonly SlimCluster[]): StateCounts {
  const out: StateCounts = {};
  for (const c of clusters) out[c.state] = (out[c.state] ?? 0) + 1;
  return out;
}

/** A place on the screen. */
export interface Cell {
  top: number;
  left: number;
}

/** Returns the cell to which a key moves the focus; undefined for another key. Cells are in rows, from the top. */
export function nextCell(cells: readonly Cell[], at: number, key: string): number | undefined {
  const last = cells.length - 1;
  switch (key) {
    case "ArrowRight":
      return Math.min(last, at + 1);
    case "ArrowLeft":
      return Math.max(0, at - 1);
    case "Home":
      return 0;
    case "End":
      return last;
    case "ArrowDown":
      return cellInRow(cells, at, 1);
    case "ArrowUp":
      return cellInRow(cells, at, -1);
  }
  return undefined;
}

/** Returns the cell of the next row that is nearest; at the edge the same cell. */
function cellInRow(cells: readonly Cell[], at: number, step: 1 | -1): number {
  const own = cells[at];
  if (!own) return at;
  let row: number | undefined;
  let nearest = at;
  for (let i = at + step; i >= 0 && i < cells.length; i += step) {
    const c = cells[i]!;
    if (Math.abs(c.top - own.top) < 2) continue;
    if (row === undefined) row = c.top;
    else if (Math.abs(c.top - row) >= 2) break;
    if (nearest === at || Math.abs(c.left - own.left) < Math.abs(cells[nearest]!.left - own.left)) nearest = i;
  }
  return nearest;
}

/** Returns what of a slim cluster decides whether it waits for a person. */
export function waitingCluster(c: SlimCluster): WaitingCluster {
  return { name: c.name, status: c.state, reason: c.reason ?? "", message: c.message ?? "", since: c.since, processes: c.processes ?? [] };
}
