// What waits for a person: clusters and applications, by actor.

import type { AppRow } from "./application";
import type { ClusterRow } from "./cluster";
import { isPerson } from "./status";

export interface Wait {
  key: string;
  actor: string;
  kind: "cluster" | "application";
  namespace: string;
  name: string;
  title: string;
  reason: string;
  message: string;
  since?: string;
}

/** Returns the waits, the oldest first. actorOf gives the actor of a reason by the hub's table. */
export function listWaits(clusters: readonly ClusterRow[], apps: readonly AppRow[], actorOf: (reason: string) => string): Wait[] {
  const out: Wait[] = [];
  for (const c of clusters) {
    const actor = actorOf(c.reason);
    if (c.status !== "Ready" && isPerson(actor)) out.push({ key: "c/" + c.name, actor, kind: "cluster", namespace: "", name: c.name, title: c.name, reason: c.reason, message: c.message, since: c.since });
  }
  for (const a of apps) {
    if (isPerson(a.actor)) out.push({ key: "a/" + a.key, actor: a.actor, kind: "application", namespace: a.namespace, name: a.name, title: a.title, reason: a.reason, message: a.message, since: a.since });
  }
  return out.sort((a, b) => ((a.since ?? "") < (b.since ?? "") ? -1 : 1));
}
