// The objects of one template in one cluster, by owner.

import type { ContainerStatus, KubeObject, Pod, Workload } from "../api/kubernetes";

export interface OwnedObject {
  kind: string;
  name: string;
  /** The name without its cluster. */
  shortName: string;
  state: string;
  detail: string;
  since?: string;
  children: OwnedObject[];
}

const clusterLabel = "atoll.dev/cluster";

export function shortNameOf(o: KubeObject): string {
  const cluster = o.metadata.labels?.[clusterLabel];
  return cluster && o.metadata.name.endsWith("." + cluster) ? o.metadata.name.slice(0, -cluster.length - 1) : o.metadata.name;
}

/** Returns the state of a pod as `kubectl get pods` words it, and what it is about. */
export function podState(p: Pod): { state: string; detail: string } {
  const all = [...(p.status?.initContainerStatuses ?? []), ...(p.status?.containerStatuses ?? [])];
  const containers = p.status?.containerStatuses ?? [];
  const ready = containers.filter((c) => c.ready).length;
  const total = Math.max(containers.length, p.spec?.containers?.length ?? 0);
  const restarts = all.reduce((n, c) => n + c.restartCount, 0);
  const detail = `${ready}/${total}` + (restarts > 0 ? ` · ↻ ${restarts}` : "");
  if (p.metadata.deletionTimestamp) return { state: "Terminating", detail };
  const waiting = all.map((c: ContainerStatus) => c.state?.waiting?.reason).find((r) => r && r !== "ContainerCreating" && r !== "PodInitializing");
  if (waiting) return { state: waiting, detail };
  const phase = p.status?.reason || p.status?.phase || "Unknown";
  return { state: phase === "Running" && ready < total ? "Progressing" : phase, detail };
}

function workloadState(w: Workload): { state: string; detail: string } {
  if (w.kind === "Job") {
    const done = w.status?.succeeded ?? 0;
    const failed = w.status?.failed ?? 0;
    return { state: done > 0 && !w.status?.active ? "Complete" : failed > 0 ? "Degraded" : "Progressing", detail: `${done}/${w.spec?.completions ?? 1}` };
  }
  const want = w.spec?.replicas ?? 0;
  const ready = w.status?.readyReplicas ?? 0;
  return { state: ready >= want ? "Healthy" : "Progressing", detail: `${ready}/${want}` };
}

/** Returns the tree of objects that a template controls, directly or by others. Objects without replicas are left out. */
export function ownedObjects(template: { kind: string; name: string }, controllers: readonly Workload[], pods: readonly Pod[]): OwnedObject[] {
  const all: (KubeObject & { kind: string })[] = [
    ...controllers.filter((c) => c.kind === "Job" || (c.spec?.replicas ?? 0) > 0 || (c.status?.replicas ?? 0) > 0).map((c) => ({ ...c, kind: c.kind ?? "" })),
    ...pods.map((p) => ({ ...p, kind: "Pod" })),
  ];
  const byOwner = new Map<string, (KubeObject & { kind: string })[]>();
  for (const o of all) {
    const owner = o.metadata.ownerReferences?.find((r) => r.controller) ?? o.metadata.ownerReferences?.[0];
    const cluster = o.metadata.labels?.[clusterLabel];
    const name = owner && cluster && owner.name.endsWith("." + cluster) ? owner.name.slice(0, -cluster.length - 1) : owner?.name;
    const key = owner ? `${owner.kind}/${name}` : `${o.kind}/${shortNameOf(o)}`;
    byOwner.set(key, [...(byOwner.get(key) ?? []), o]);
  }
  const build = (key: string, depth: number): OwnedObject[] =>
    (depth > 4 ? [] : (byOwner.get(key) ?? []))
      .map((o) => {
        const { state, detail } = o.kind === "Pod" ? podState(o as Pod) : workloadState(o as Workload);
        const children = o.kind === "Pod" ? [] : build(`${o.kind}/${shortNameOf(o)}`, depth + 1);
        return { kind: o.kind, name: o.metadata.name, shortName: shortNameOf(o), state, detail, since: o.metadata.creationTimestamp, children };
      })
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  return build(`${template.kind}/${template.name}`, 0);
}
