// The live tree of one application, by the hub's own endpoint.

import { type RequestError, errorOf, getJSON, readLines } from "./client";
import { followStream } from "./follow";
import type { Status } from "./kubernetes";

export type RowState = "Failed" | "Degraded" | "Away" | "Waiting" | "Progressing" | "Removing" | "Ready";

export interface Template {
  group?: string;
  kind: string;
  namespace?: string;
  name: string;
}

/** Returns the key of a template, as kept changes name it: GROUP/KIND/NAMESPACE/NAME. */
export function keyOfTemplate(o: Template): string {
  return `${o.group ?? ""}/${o.kind}/${o.namespace ?? ""}/${o.name}`;
}

/** Returns the template of a key, or the first. Others come and go, so the place in the list says nothing. */
export function findTemplate(list: readonly Template[], key: string | undefined): Template | undefined {
  return list.find((o) => keyOfTemplate(o) === key) ?? list[0];
}

export interface TreeItem {
  template: number;
  health?: string;
  reason?: string;
  message?: string;
  since?: string;
  error?: boolean;
  absent?: boolean;
}

export interface TreeCluster {
  name: string;
  state: RowState;
  phase: string;
  revision: number;
  reason?: string;
  actor?: string;
  message?: string;
  since?: string;
  applied?: boolean;
  total: number;
  ready: number;
  items?: TreeItem[];
  unlisted?: number;
}

/** What waits for the confirmation of exactly its hash. */
export interface HeldPlan {
  hash: string;
  recalled?: boolean;
  clusters: number;
  parts: { reason: string; text?: string; clusters: string[]; moreClusters?: number }[];
  moreParts?: number;
}

export interface Tree {
  namespace?: string;
  name: string;
  revision: number;
  templates: Template[];
  hiddenTemplates?: number;
  counts: Partial<Record<RowState, number>>;
  clusters: TreeCluster[];
  moreClusters?: number;
  plans?: HeldPlan[];
}

interface TreeLine {
  type: "TREE" | "CHANGED" | "ERROR";
  tree?: Tree;
  gone?: string[];
  status?: Status;
}

export interface TreeState {
  tree?: Tree;
  refusal?: RequestError;
}

export const stateOrder: readonly RowState[] = ["Failed", "Degraded", "Away", "Waiting", "Progressing", "Removing", "Ready"];

/** Returns the tree after a line of the stream. */
export function applyLine(before: Tree | undefined, line: TreeLine): Tree | undefined {
  if (!line.tree) return before;
  if (line.type === "TREE" || !before) return line.tree;
  const clusters = new Map(before.clusters.map((c) => [c.name, c]));
  for (const name of line.gone ?? []) clusters.delete(name);
  for (const c of line.tree.clusters) clusters.set(c.name, c);
  return { ...line.tree, clusters: [...clusters.values()].sort(compareClusters) };
}

/** Clusters with trouble come first, then by name. */
export function compareClusters(a: TreeCluster, b: TreeCluster): number {
  return stateOrder.indexOf(a.state) - stateOrder.indexOf(b.state) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

/** Follows the tree of a Bundle until the returned function is called. */
export function followTree(namespace: string, name: string, onChange: (state: TreeState) => void): () => void {
  const stop = new AbortController();
  const parameters = new URLSearchParams({ name, watch: "true" });
  if (namespace !== "") parameters.set("namespace", namespace);
  let tree: Tree | undefined;
  void followStream({
    signal: stop.signal,
    attempt: (onOpen) =>
      readLines("/atoll/v1alpha1/tree?" + parameters.toString(), stop.signal, {
        onOpen,
        onLine: (value) => {
          const line = value as TreeLine;
          if (line.type === "ERROR") throw errorOf(line.status ?? { kind: "Status" });
          tree = applyLine(tree, line);
          onChange({ tree });
        },
      }),
    onExpired: () => undefined,
    onRefused: (refusal) => onChange({ tree, refusal }),
  });
  return () => stop.abort();
}

/** Returns the tree once, with at most one cluster. */
async function getSmallTree(namespace: string, name: string, signal: AbortSignal): Promise<Tree> {
  const parameters = new URLSearchParams({ name, limit: "1" });
  if (namespace !== "") parameters.set("namespace", namespace);
  return getJSON<Tree>("/atoll/v1alpha1/tree?" + parameters.toString(), signal);
}

/** Returns the plans of a Bundle that wait for a confirmation. */
export async function getHeldPlans(namespace: string, name: string, signal: AbortSignal): Promise<HeldPlan[]> {
  return (await getSmallTree(namespace, name, signal)).plans ?? [];
}

/** Returns the templates of a Bundle that the person may read. */
export async function getTemplates(namespace: string, name: string, signal: AbortSignal): Promise<Template[]> {
  return (await getSmallTree(namespace, name, signal)).templates;
}
