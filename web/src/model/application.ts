// What the console shows of an application: a Bundle or a ClusterBundle.

import type { Condition } from "../api/kubernetes";
import type { Bundle } from "../api/types.gen";
import { conditionOf } from "./cluster";
import type { Searchable } from "./filter";
import { isPerson } from "./status";

export type AppStatus = "Failed" | "Degraded" | "Waiting" | "Away" | "Progressing" | "Deleting" | "Nowhere" | "Unknown" | "Ready";

export const appStatuses: readonly AppStatus[] = ["Failed", "Degraded", "Waiting", "Away", "Progressing", "Deleting", "Nowhere", "Unknown", "Ready"];

export interface AppRow {
  key: string;
  namespace: string;
  name: string;
  /** What a team calls it: the annotated object, or the Bundle itself. */
  title: string;
  status: AppStatus;
  reason: string;
  message: string;
  actor: string;
  since?: string;
  desired: number;
  ready: number;
  away: number;
  replicas: number;
  readyReplicas: number;
  items: number;
  source: string;
  rollout: NonNullable<Bundle["status"]>["rollout"];
  bundle: Bundle;
}

/** Returns the status: the engine's own conditions and wait, in one word. */
export function appStatus(b: Bundle): AppStatus {
  const s = b.status;
  const conditions = s?.conditions as Condition[] | undefined;
  const ready = conditionOf(conditions, "Ready");
  const applied = conditionOf(conditions, "Applied");
  const scheduled = conditionOf(conditions, "Scheduled");
  if (b.metadata.deletionTimestamp) return "Deleting";
  if (applied?.status === "False" && applied.reason === "Failed") return "Failed";
  if (ready?.reason === "Degraded") return "Degraded";
  if (s?.wait && isPerson(s.wait.actor)) return "Waiting";
  if (scheduled?.reason === "Nowhere") return "Nowhere";
  if (ready?.reason === "ClustersAway") return "Away";
  if (s?.wait || applied?.status === "False") return "Progressing";
  if (ready?.status === "True") return "Ready";
  return ready?.status === "False" ? "Progressing" : "Unknown";
}

export function appRow(b: Bundle): AppRow {
  const s = b.status;
  const conditions = s?.conditions as Condition[] | undefined;
  const ready = conditionOf(conditions, "Ready");
  return {
    key: (b.metadata.namespace ?? "") + "/" + b.metadata.name, namespace: b.metadata.namespace ?? "", name: b.metadata.name, bundle: b, title: b.spec.source.kind === "Annotation" ? b.spec.source.name : b.metadata.name,
    status: appStatus(b), reason: s?.wait?.reason ?? ready?.reason ?? "", message: s?.waitsFor ?? "", actor: s?.wait?.actor ?? "",
    since: s?.wait?.since ?? ready?.lastTransitionTime ?? b.metadata.creationTimestamp,
    desired: s?.clusters?.desired ?? 0, ready: s?.clusters?.ready ?? 0, away: s?.clusters?.away ?? 0,
    replicas: s?.replicas ?? 0, readyReplicas: s?.readyReplicas ?? 0, items: s?.items ?? 0,
    source: `${b.spec.source.kind} ${b.spec.source.name}`, rollout: s?.rollout,
  };
}

export function searchApp(r: AppRow): Searchable {
  return {
    words: [r.name, r.title, r.namespace, r.reason, r.source, r.message],
    fields: {
      name: [r.name, r.title], namespace: [r.namespace], ns: [r.namespace], status: [r.status], reason: [r.reason], actor: [r.actor], policy: [r.bundle.spec.source.name], source: [r.bundle.spec.source.kind] },
  };
}
