// What waits for a person: clusters, applications and Sources, by actor.

import type { Condition } from "../api/kubernetes";
import type { Bundle, Cluster } from "../api/types.gen";
import type { AppRow } from "./application";
import type { Process } from "../api/fleet";
import { type ClusterStatus, conditionOf } from "./cluster";
import type { SourceRow } from "./source";
import { isPerson } from "./status";

/** What a person can do about a wait; "look": the console has no button for it. */
export type WaitAction = "confirm" | "approve" | "resume" | "join" | "look";

export interface Wait {
  key: string;
  actor: string;
  kind: "cluster" | "application" | "source";
  action: WaitAction;
  namespace: string;
  name: string;
  title: string;
  reason: string;
  message: string;
  since?: string;
  /** The stage that an approval is for, and the revision. */
  stage?: string;
  revision?: string;
  bundle?: Bundle;
  cluster?: Cluster;
}

export type ActorOf = (reason: string) => string;

/** What of a cluster decides whether it waits. */
export interface WaitingCluster {
  name: string;
  status: ClusterStatus;
  reason: string;
  message: string;
  since?: string;
  processes: readonly Process[];
  /** The object, where the page has it. */
  cluster?: Cluster;
}

/** Returns the waits, the oldest first. actorOf gives the actor of a reason by the hub's table. */
export function listWaits(clusters: readonly WaitingCluster[], apps: readonly AppRow[], actorOf: ActorOf, sources: readonly SourceRow[] = []): Wait[] {
  const out = [...clusters.flatMap((c) => clusterWaits(c, actorOf)), ...apps.flatMap((a) => appWaits(a, actorOf)), ...sources.flatMap((s) => sourceWaits(s, actorOf))];
  return out.sort((a, b) => ((a.since ?? "") < (b.since ?? "") ? -1 : 1));
}

function clusterWaits(c: WaitingCluster, actorOf: ActorOf): Wait[] {
  const wait = (reason: string, message: string, since: string | undefined): Wait => ({
    key: "c/" + c.name + "/" + reason, actor: actorOf(reason), kind: "cluster", action: c.status === "Joining" ? "join" : "look", namespace: "", name: c.name, title: c.name, reason, message, since, cluster: c.cluster,
  });
  const out = c.status === "Ready" ? [] : [wait(c.reason, c.message, c.since)];
  for (const p of c.processes) if (p.reason !== c.reason) out.push(wait(p.reason, p.message ?? "", p.since));
  return out.filter((w) => isPerson(w.actor));
}

/** Returns the wait of a Source that is not applied, or that others changed on the hub. What its clusters wait for is of its applications. */
function sourceWaits(s: SourceRow, actorOf: ActorOf): Wait[] {
  const actor = actorOf(s.reason);
  if ((s.state !== "Failed" && s.state !== "Drifted") || !isPerson(actor)) return [];
  return [{ key: "s/" + s.key, actor, kind: "source", action: "look", namespace: s.namespace, name: s.name, title: s.name, reason: s.reason, message: s.message, since: s.since }];
}

/** Returns the stages whose gate waits for an approval, each with the time since when. */
export function stagesToApprove(b: Bundle): { stage: string; since: string }[] {
  const out: { stage: string; since: string }[] = [];
  for (const g of b.status?.rollout?.gates ?? []) {
    const r = b.spec.rollout;
    const stage = r?.stages?.find((s) => s.name === g.stage);
    const gates = r?.autoStages?.length ? r.autoStageOptions?.gatesBefore : [...(stage?.gatesBefore ?? []), ...(stage?.gatesAfter ?? [])];
    const isApproval = gates?.some((x) => x.name === g.name && x.approval);
    if (g.state === "Waiting" && isApproval && !out.some((o) => o.stage === g.stage)) out.push({ stage: g.stage, since: g.since });
  }
  return out;
}

/**
 * Reports whether `atoll rollout resume` lets a rollout go on that waits for this reason. It excuses unhealthy clusters under the
 * default bound alone: a stated maxUnavailable holds until they recover, or the template changes.
 */
function canResume(b: Bundle, reason: string): boolean {
  return reason === "StageFailed" || reason === "GateFailed" || (reason === "TooManyUnhealthy" && !b.spec.rollout);
}

function appWaits(a: AppRow, actorOf: ActorOf): Wait[] {
  const { bundle, rollout } = a;
  const out: Wait[] = [];
  const add = (action: WaitAction, reason: string, message: string, since: string | undefined, more: Partial<Wait> = {}) => {
    out.push({ key: `a/${a.key}/${action}/${more.stage ?? reason}`, actor: actorOf(reason), kind: "application", action, namespace: a.namespace, name: a.name, title: a.title, reason, message, since, bundle, ...more });
  };
  const held = conditionOf(bundle.status?.conditions as Condition[] | undefined, "RemovalHeld");
  const isWait = isPerson(a.actor);
  if (held?.status === "True" || (isWait && a.reason === "WaitsForConfirmation")) add("confirm", "WaitsForConfirmation", held?.message || a.message, held?.lastTransitionTime ?? a.since);
  for (const { stage, since } of stagesToApprove(bundle)) add("approve", "WaitsForApproval", "", since, { stage, revision: bundle.status?.revision });
  if (bundle.spec.pause) add("resume", "RolloutPaused", bundle.spec.pause.message ?? "", bundle.spec.pause.since ?? rollout?.pausedSince);
  if (rollout?.reason && canResume(bundle, rollout.reason)) add("resume", rollout.reason, rollout.message ?? "", rollout.since);
  const covered = new Set(out.map((w) => w.reason));
  if (isWait && !covered.has(a.reason)) add("look", a.reason, a.message, a.since, { actor: a.actor });
  return out;
}
