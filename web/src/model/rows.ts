// The rows of the tree view: what is shown of a tree, given what is open.

import { type RowState, type Tree, type TreeCluster, type TreeItem, stateOrder } from "../api/tree";
import { hasLogs } from "./logsources";
import type { OwnedObject } from "./owners";

export type Grouping = "template" | "cluster";

export interface TreeRow {
  id: string;
  depth: number;
  icon: "template" | "cluster" | "group" | "object";
  kind: string;
  name: string;
  state: string;
  detail: string;
  reason: string;
  message: string;
  since?: string;
  /** Undefined: there is nothing below. */
  open?: boolean;
  /** The cluster whose objects are wanted while the row is open. */
  cluster?: string;
  /** The object whose logs can be read. */
  logs?: { kind: string; namespace: string; name: string };
}

/** Above so many clusters, those in one state are one row. */
const foldAbove = 8;

/** Objects below a template in a cluster; undefined: they are not read. */
export type ObjectsOf = (cluster: string, template: number) => OwnedObject[] | undefined;

/** Kinds whose objects in clusters can be seen. */
const controllers = new Set(["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "ReplicationController", "Pod"]);

/** Returns the state of a template in a cluster, by the report of the cluster. */
export function itemState(c: TreeCluster, template: number): { state: string; item?: TreeItem } {
  const item = c.items?.find((i) => i.template === template);
  if (item?.absent) return { state: "Nowhere", item };
  if (c.state === "Away" || c.state === "Waiting" || c.state === "Removing") return { state: c.state, item };
  if (item?.error) return { state: "Failed", item };
  if (item?.health && item.health !== "Healthy") return { state: item.health, item };
  if (c.applied && !c.unlisted) return { state: "Healthy", item };
  return { state: c.applied && c.state === "Ready" ? "Healthy" : "Progressing", item };
}

const severity = ["Failed", "Degraded", "Missing", "Away", "Waiting", "Progressing", "Removing", "Suspended", "Unknown", "Nowhere", "Healthy", "Ready"];

export function worstOf(states: Iterable<string>): string {
  let worst = "";
  for (const s of states) if (worst === "" || severity.indexOf(s) < severity.indexOf(worst)) worst = s;
  return worst === "Ready" ? "Healthy" : worst;
}

/** Returns the rows to show. opened holds the ids that a person opened, or closed with a minus before. */
export function treeRows(tree: Tree, grouping: Grouping, opened: ReadonlySet<string>, objectsOf: ObjectsOf): TreeRow[] {
  const b = new RowBuilder(tree, opened, objectsOf);
  if (grouping === "cluster") b.addClusters("", 0, tree.clusters, undefined);
  else tree.templates.forEach((_, i) => b.addTemplate(i));
  return b.rows;
}

class RowBuilder {
  readonly rows: TreeRow[] = [];

  constructor(private readonly tree: Tree, private readonly opened: ReadonlySet<string>, private readonly objectsOf: ObjectsOf) {}

  private isOpen(id: string, byDefault: boolean): boolean {
    return byDefault ? !this.opened.has("-" + id) : this.opened.has(id);
  }

  private logsOf(o: { kind: string; group?: string; namespace?: string }, name: string): TreeRow["logs"] {
    const namespace = o.namespace || this.tree.namespace;
    return namespace && hasLogs(o.kind, o.group ?? "") ? { kind: o.kind, namespace, name } : undefined;
  }

  addTemplate(at: number): void {
    const template = this.tree.templates[at]!;
    const states = this.tree.clusters.map((c) => itemState(c, at).state);
    const id = "t" + at;
    const open = this.isOpen(id, this.tree.templates.length <= foldAbove || states.some((s) => s !== "Healthy" && s !== "Nowhere"));
    const good = states.filter((s) => s === "Healthy").length;
    this.rows.push({
      id, depth: 0, icon: "template", kind: template.kind, name: template.name, state: worstOf(states) || "Unknown", detail: `${good}/${states.length}`,
      reason: "", message: "", open: this.tree.clusters.length > 0 ? open : undefined, logs: template.kind === "Pod" ? undefined : this.logsOf(template, template.name), // the pods of a written Pod are below its clusters
    });
    if (open) this.addClusters(id, 1, this.tree.clusters, at);
  }

  /** Adds clusters, those of one state as one row where there are many. */
  addClusters(parent: string, depth: number, clusters: readonly TreeCluster[], template: number | undefined): void {
    const stateOf = (c: TreeCluster) => (template === undefined ? c.state : itemState(c, template).state);
    const groups = new Map<string, TreeCluster[]>();
    for (const c of clusters) groups.set(stateOf(c), [...(groups.get(stateOf(c)) ?? []), c]);
    const order = [...groups.keys()].sort((a, b) => severity.indexOf(a) - severity.indexOf(b));
    for (const state of order) {
      const members = groups.get(state)!;
      const fold = clusters.length > foldAbove && members.length > 3;
      const id = `${parent}/g${state}`;
      if (fold) {
        const open = this.isOpen(id, false);
        this.rows.push({ id, depth, icon: "group", kind: "", name: "", state, detail: String(members.length), reason: "", message: "", open });
        if (!open) continue;
      }
      for (const c of members) this.addCluster(parent, depth + (fold ? 1 : 0), c, template);
    }
  }

  private addCluster(parent: string, depth: number, c: TreeCluster, template: number | undefined): void {
    const id = `${parent}/c${c.name}`;
    const { state, item } = template === undefined ? { state: c.state as string, item: undefined } : itemState(c, template);
    const expandable = template === undefined ? this.tree.templates.length > 0 : controllers.has(this.tree.templates[template]!.kind);
    const open = expandable ? this.isOpen(id, false) : undefined;
    this.rows.push({
      id, depth, icon: "cluster", kind: "Cluster", name: c.name, state, detail: template === undefined && c.total > 0 ? `${c.ready}/${c.total}` : "",
      reason: item?.reason || (state === "Healthy" ? "" : (c.reason ?? "")), message: item?.message || (state === "Healthy" ? "" : (c.message ?? "")),
      since: item?.since ?? c.since, open, cluster: c.name,
    });
    if (!open) return;
    if (template === undefined) this.tree.templates.forEach((_, i) => this.addItem(id, depth + 1, c, i));
    else this.addObjects(id, depth + 1, c, template);
  }

  private addItem(parent: string, depth: number, c: TreeCluster, at: number): void {
    const template = this.tree.templates[at]!;
    const { state, item } = itemState(c, at);
    const id = `${parent}/t${at}`;
    const expandable = controllers.has(template.kind);
    const open = expandable ? this.isOpen(id, false) : undefined;
    this.rows.push({ id, depth, icon: "template", kind: template.kind, name: template.name, state, detail: "", reason: item?.reason ?? "", message: item?.message ?? "", since: item?.since, open, cluster: c.name });
    if (open) this.addObjects(id, depth + 1, c, at);
  }

  private addObjects(parent: string, depth: number, c: TreeCluster, template: number): void {
    const objects = this.objectsOf(c.name, template);
    const loading = objects === undefined;
    if (loading || objects.length === 0) {
      this.rows.push({ id: parent + "/none", depth, icon: "group", kind: "", name: "", state: "", detail: loading ? "loading" : "none", reason: "", message: "" });
      return;
    }
    this.addOwned(parent, depth, objects);
  }

  private addOwned(parent: string, depth: number, objects: OwnedObject[]): void {
    for (const o of objects) {
      const id = `${parent}/o${o.kind}/${o.name}`;
      const open = o.children.length > 0 ? this.isOpen(id, true) : undefined;
      this.rows.push({ id, depth, icon: "object", kind: o.kind, name: o.shortName, state: o.state, detail: o.detail, reason: "", message: "", since: o.since, open, logs: o.kind === "Pod" ? this.logsOf(o, o.name) : undefined });
      if (open) this.addOwned(id, depth + 1, o.children);
    }
  }
}

/** Counts of the states in their order, for pills. */
export function countStates(tree: Tree): [RowState, number][] {
  return stateOrder.map((s) => [s, tree.counts[s] ?? 0]);
}
