// What the fleet shows of a Cluster.

import type { Process } from "../api/fleet";
import type { Condition } from "../api/kubernetes";
import type { Cluster } from "../api/types.gen";
import { parseQuantity } from "./quantity";

export type ClusterStatus = "NotReady" | "Away" | "Joining" | "Removing" | "Unknown" | "Ready";

export const clusterStatuses: readonly ClusterStatus[] = ["NotReady", "Away", "Joining", "Removing", "Unknown", "Ready"];

export interface Use {
  used: number;
  of: number;
}

export interface ClusterRow {
  name: string;
  status: ClusterStatus;
  reason: string;
  message: string;
  since?: string;
  region: string;
  version: string;
  agent: string;
  nodes: string;
  cpu?: Use;
  memory?: Use;
  pods?: Use;
  labels: [string, string][];
  taints: string[];
  processes: Process[];
  cluster: Cluster;
}

export function conditionOf(conditions: readonly Condition[] | undefined, type: string): Condition | undefined {
  return conditions?.find((c) => c.type === type);
}

/** Returns the status of a cluster and the condition that says so. */
export function clusterStatus(c: Cluster): { status: ClusterStatus; condition?: Condition } {
  const conditions = c.status?.conditions as Condition[] | undefined;
  const ready = conditionOf(conditions, "Ready");
  if (c.spec.removal) return { status: "Removing", condition: conditionOf(conditions, "Removing") ?? ready };
  if (!c.spec.accepted) return { status: "Joining", condition: conditionOf(conditions, "Accepted") ?? ready };
  switch (ready?.status) {
    case "True":
      return { status: "Ready", condition: ready };
    case "False":
      return { status: "NotReady", condition: ready };
    case "Unknown":
      return { status: ready.reason === "NotDetermined" ? "Unknown" : "Away", condition: ready };
  }
  return { status: "Unknown" };
}

function useOf(c: Cluster, resource: string): Use | undefined {
  const of = parseQuantity(c.status?.resources?.allocatable?.[resource]);
  const used = parseQuantity(c.status?.resources?.requested?.[resource]);
  return of === undefined || of === 0 ? undefined : { of, used: used ?? 0 };
}

/** Returns the zones of a cluster, of which most have one. */
export function zonesOf(c: Cluster): string[] {
  return c.spec.zones?.length ? c.spec.zones : c.spec.zone ? [c.spec.zone] : [];
}

/** Conditions, other than its state, that can wait for a person. */
const processTypes = ["Draining", "Removing"];

/** Returns the drain and the removal that are under way, other than the condition that is the state already. */
function processesOf(c: Cluster, state: Condition | undefined): Process[] {
  const all = (c.status?.conditions ?? []) as Condition[];
  return all.filter((x) => x !== state && x.status === "True" && processTypes.includes(x.type)).map((x) => ({ type: x.type, reason: x.reason, message: x.message, since: x.lastTransitionTime }));
}

/** Labels that repeat what other columns show. */
const shownElsewhere = new Set(["kubernetes.io/metadata.name"]);

export function clusterRow(c: Cluster): ClusterRow {
  const { status, condition } = clusterStatus(c);
  return {
    name: c.metadata.name, status, cluster: c,
    reason: condition?.reason ?? "", message: condition?.message ?? "", since: condition?.lastTransitionTime ?? c.metadata.creationTimestamp,
    region: c.spec.region ?? "", version: c.status?.kubernetesVersion ?? "", agent: c.status?.agentVersion ?? "", nodes: c.status?.nodes?.summary ?? "",
    cpu: useOf(c, "cpu"), memory: useOf(c, "memory"), pods: useOf(c, "pods"),
    labels: Object.entries(c.metadata.labels ?? {}).filter(([key]) => !shownElsewhere.has(key)).sort(),
    taints: (c.spec.taints ?? []).map((x) => x.key + (x.value ? "=" + x.value : "") + ":" + x.effect),
    processes: processesOf(c, condition),
  };
}
