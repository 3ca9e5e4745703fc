// The fleet without its objects, by the hub's own endpoints: counts, pages of clusters, Sources, and a search by names.

import type { ClusterStatus, Use } from "../model/cluster";
import { type RequestError, errorOf, getJSON, readLines } from "./client";
import { followStream } from "./follow";
import type { Status } from "./kubernetes";
import type { Source } from "./types.gen";

const root = "/atoll/v1alpha1/fleet/";

/** A drain or a removal of a cluster that is under way. */
export interface Process {
  type: string;
  reason: string;
  message?: string;
  since?: string;
}

export interface SlimCluster {
  name: string;
  state: ClusterStatus;
  reason?: string;
  message?: string;
  since?: string;
  /** Values of the property by which the request groups. */
  groups?: string[];
  region?: string;
  zone?: string;
  provider?: string;
  version?: string;
  agent?: string;
  nodes?: string;
  cpu?: Use;
  memory?: Use;
  pods?: Use;
  taints?: number;
  drifted?: number;
  processes?: Process[];
}

export type StateCounts = Partial<Record<ClusterStatus, number>>;

export interface FleetPage {
  clusters: SlimCluster[];
  all: number;
  before: number;
  matching: number;
  states: StateCounts;
  continue?: string;
}

export interface FleetGroup {
  value: string;
  clusters: number;
  states: StateCounts;
}

export interface FleetCounts {
  by?: string;
  all: number;
  matching: number;
  states: StateCounts;
  groups: FleetGroup[];
  moreGroups?: number;
  moreClusters?: number;
}

/** What a stream has sent last, or why it is refused. */
export interface Followed<S> {
  value?: S;
  refusal?: RequestError;
}

interface ErrorLine {
  type: "ERROR";
  status?: Status;
}

interface Stream<L, S> {
  path: string;
  /** Returns the value after a line. Each connection begins without a value. */
  apply(before: S | undefined, line: L): S;
  isWhole(value: S): boolean;
}

/** Follows a stream until the returned function is called. What was sent stays until the next connection has sent the whole. */
function followLines<L, S>(s: Stream<L, S>, onChange: (f: Followed<S>) => void): () => void {
  const stop = new AbortController();
  void followStream({
    signal: stop.signal,
    attempt: (onOpen) => {
      let value: S | undefined;
      const onLine = (raw: unknown) => {
        if ((raw as ErrorLine).type === "ERROR") throw errorOf((raw as ErrorLine).status ?? { kind: "Status" });
        value = s.apply(value, raw as L);
        if (s.isWhole(value) && !stop.signal.aborted) onChange({ value });
      };
      return readLines(s.path, stop.signal, { onOpen, onLine });
    },
    onExpired: () => undefined,
    onRefused: (refusal) => onChange({ refusal }),
  });
  return () => stop.abort();
}

export interface PageLine {
  type: "PAGE" | "CHANGED";
  page: FleetPage & { order?: string[] };
}

/** Returns the page after a line of its stream. */
export function applyPageLine(before: FleetPage | undefined, line: PageLine): FleetPage {
  const { order, ...page } = line.page;
  if (line.type === "PAGE" || !before) return page;
  const known = new Map([...before.clusters, ...page.clusters].map((c) => [c.name, c]));
  const names = order ?? before.clusters.map((c) => c.name);
  return { ...page, clusters: names.flatMap((name) => known.get(name) ?? []) };
}

function streamPath(endpoint: string, parameters: URLSearchParams): string {
  const q = new URLSearchParams(parameters);
  q.set("watch", "true");
  return root + endpoint + "?" + q.toString();
}

/** Follows one page of clusters. */
export function followPage(parameters: URLSearchParams, onChange: (f: Followed<FleetPage>) => void): () => void {
  return followLines<PageLine, FleetPage>({ path: streamPath("clusters", parameters), apply: applyPageLine, isWhole: () => true }, onChange);
}

/** Follows the counts of the clusters. */
export function followCounts(parameters: URLSearchParams, onChange: (f: Followed<FleetCounts>) => void): () => void {
  return followLines<{ counts: FleetCounts }, FleetCounts>({ path: streamPath("counts", parameters), apply: (_, line) => line.counts, isWhole: () => true }, onChange);
}

export interface SourcesLine {
  type: "SOURCES" | "CHANGED";
  sources: Source[];
  complete?: boolean;
  gone?: { namespace: string; name: string }[];
}

export interface SourceList {
  byKey: ReadonlyMap<string, Source>;
  items: readonly Source[];
  complete: boolean;
}

/** Returns the Sources after a line of their stream. */
export function applySourcesLine(before: SourceList | undefined, line: SourcesLine): SourceList {
  const byKey = new Map(before?.byKey);
  for (const s of line.sources) byKey.set(`${s.metadata.namespace}/${s.metadata.name}`, s);
  for (const s of line.gone ?? []) byKey.delete(`${s.namespace}/${s.name}`);
  return { byKey, items: [...byKey.values()], complete: !!before?.complete || !!line.complete };
}

/** Follows the Sources of a namespace, or of all, without their inventories. */
export function followSources(namespace: string, onChange: (f: Followed<SourceList>) => void): () => void {
  const parameters = new URLSearchParams(namespace === "" ? {} : { namespace });
  return followLines<SourcesLine, SourceList>({ path: streamPath("sources", parameters), apply: applySourcesLine, isWhole: (list) => list.complete }, onChange);
}

/** An object that a search found. */
export interface Found {
  kind: "Cluster" | "Bundle" | "ClusterBundle" | "Source" | "PropagationPolicy" | "ClusterPropagationPolicy" | "OverridePolicy" | "ClusterOverridePolicy" | "Placement" | "ClusterPlacement";
  namespace?: string;
  name: string;
  title?: string;
  detail?: string;
}

/** Finds objects whose names have all words of a text. A kind that the person may not list in all namespaces is searched in one. */
export async function searchNames(text: string, namespace: string, signal: AbortSignal): Promise<Found[]> {
  const q = new URLSearchParams({ q: text });
  if (namespace !== "") q.set("namespace", namespace);
  return (await getJSON<{ found: Found[] }>(root + "search?" + q.toString(), signal)).found;
}
