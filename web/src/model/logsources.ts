// Which logs are read: the containers of the pods of a workload, and the requests and commands for them.

import type { ContainerStatus, KubeObject, Pod } from "../api/kubernetes";
import { shortNameOf } from "./owners";
import { commandOf } from "./shell";
import { fieldSelector } from "./selector";
import { formatSeconds } from "./time";

/** Kinds with pods, by their place in the API. */
const places: Record<string, string> = { Deployment: "apps/v1/deployments", StatefulSet: "apps/v1/statefulsets", DaemonSet: "apps/v1/daemonsets", ReplicaSet: "apps/v1/replicasets", Job: "batch/v1/jobs" };
const groups: Record<string, string> = { Job: "batch", Pod: "" };

/** Reports whether logs of a kind's pods can be read; without a group, that of the kind is meant. */
export function hasLogs(kind: string, group?: string): boolean {
  const own = groups[kind] ?? "apps";
  return (kind === "Pod" || Object.hasOwn(places, kind)) && (group ?? own) === own;
}

/** Returns the path of a workload; nothing for a Pod and for other kinds. */
export function workloadPath(kind: string, namespace: string, name: string): string | undefined {
  const [group, version, resource] = (Object.hasOwn(places, kind) ? places[kind]! : "").split("/");
  return group ? `/apis/${group}/${version}/namespaces/${encodeURIComponent(namespace)}/${resource}/${encodeURIComponent(name)}` : undefined;
}

export interface Selecting extends KubeObject {
  spec?: { selector?: { matchLabels?: Record<string, string>; matchExpressions?: { key: string; operator: string; values?: string[] }[] } };
}

/** Returns the label selector of a workload's pods; nothing: it selects none that a selector can name. */
export function podSelector(w: Selecting, kind: string): string | undefined {
  // Every cluster gives its own UID to the pods of a Job; the name is the same in all.
  if (kind === "Job") return "batch.kubernetes.io/job-name=" + w.metadata.name;
  const { matchLabels = {}, matchExpressions = [] } = w.spec?.selector ?? {};
  const terms = Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`);
  for (const e of matchExpressions) {
    const values = (e.values ?? []).join(",");
    const term = { In: `${e.key} in (${values})`, NotIn: `${e.key} notin (${values})`, Exists: e.key, DoesNotExist: "!" + e.key }[e.operator];
    if (term === undefined) return undefined;
    terms.push(term);
  }
  return terms.length > 0 ? terms.join(",") : undefined;
}

export interface LogSource {
  /** The pod's UID and the container. */
  key: string;
  namespace: string;
  pod: string;
  /** The pod's name in its cluster. */
  shortName: string;
  cluster: string;
  container: string;
  /** The run of the container: another one after a restart. */
  run: string;
  /** It has written, or can. */
  started: boolean;
  running: boolean;
}

/** All containers, instead of one. */
export const allContainers = "*";

/** Returns the names of the pods' containers, those that run first included. */
export function containerNames(pods: readonly Pod[]): string[] {
  return [...new Set(pods.flatMap(namesOf))];
}

function namesOf(p: Pod): string[] {
  return [...(p.spec?.initContainers ?? []), ...(p.spec?.containers ?? []), ...(p.spec?.ephemeralContainers ?? [])].map((c) => c.name);
}

function chosenContainers(p: Pod, chosen: string): string[] {
  const all = namesOf(p);
  if (chosen === allContainers) return all;
  if (chosen !== "") return all.includes(chosen) ? [chosen] : [];
  const stated = p.metadata.annotations?.["kubectl.kubernetes.io/default-container"] ?? "";
  const first = all.includes(stated) ? stated : p.spec?.containers?.[0]?.name;
  return first ? [first] : [];
}

/** Returns the status of a container of any kind; nothing before it has one. */
export function containerStatus(p: Pod, container: string): ContainerStatus | undefined {
  return [...(p.status?.initContainerStatuses ?? []), ...(p.status?.containerStatuses ?? []), ...(p.status?.ephemeralContainerStatuses ?? [])].find((s) => s.name === container);
}

/** Returns the sources of pods, by cluster and name. An empty choice is the default container of each pod. */
export function sourcesOf(pods: readonly Pod[], chosen: string): LogSource[] {
  const sources = pods.flatMap((p) =>
    chosenContainers(p, chosen).map((container): LogSource => {
      const status = containerStatus(p, container);
      const running = !!status?.state?.running;
      return {
        key: `${p.metadata.uid ?? p.metadata.name}/${container}`, namespace: p.metadata.namespace ?? "", pod: p.metadata.name, shortName: shortNameOf(p), cluster: p.metadata.labels?.["atoll.dev/cluster"] ?? "",
        container, run: status?.containerID ?? "", started: running || !!status?.state?.terminated, running,
      };
    }),
  );
  const name = (s: LogSource) => [s.cluster, s.shortName, s.container].join("\u0000");
  return sources.sort((a, b) => (name(a) < name(b) ? -1 : 1));
}

/** Returns what begins the lines of a source, as `atoll logs` has it. */
export function sourceName(s: LogSource, withContainer = true): string {
  return (s.cluster ? s.cluster + "/" : "") + s.shortName + (withContainer ? " " + s.container : "");
}

export interface LogRange {
  /** The last lines of each container. */
  tail: number;
  /** Only lines of the last seconds; 0: of any time. */
  since: number;
}

/** Returns the request for a source. After a break it goes on from a time. */
export function logPath(s: LogSource, range: LogRange, from?: number): string {
  const q = new URLSearchParams({ container: s.container, timestamps: "true", follow: "true" });
  if (from) q.set("sinceTime", formatSeconds(new Date(from)));
  else {
    q.set("tailLines", String(range.tail));
    if (range.since > 0) q.set("sinceSeconds", String(range.since));
  }
  return `/api/v1/namespaces/${encodeURIComponent(s.namespace)}/pods/${encodeURIComponent(s.pod)}/log?${q.toString()}`;
}

export interface LogSubject {
  kind: string;
  namespace: string;
  name: string;
}

/** A workload with the selector of its pods; a Pod has none. */
export interface Workload extends LogSubject {
  selector?: string;
}

/** Returns the parameter that selects the pods of a workload, in one cluster or in all. A written Pod is in clusters under its full names. */
export function podQuery(w: Workload, cluster: string): string {
  const labels = [w.selector, cluster && "atoll.dev/cluster=" + cluster].filter(Boolean).join(",");
  return w.kind === "Pod" ? fieldSelector({ "metadata.name": w.name }) : "labelSelector=" + encodeURIComponent(labels);
}

/** Returns the commands that print the same: kubectl's, and atoll's. */
export function logCommands(w: Workload, container: string, cluster: string, range: LogRange): string[] {
  const isPod = w.kind === "Pod";
  const containers = container === allContainers ? ["--all-containers"] : container ? ["-c", container] : [];
  const bounds = [...containers, "--tail", String(range.tail), ...(range.since > 0 ? ["--since", range.since + "s"] : [])];
  const labels = [w.selector, cluster && "atoll.dev/cluster=" + cluster].filter(Boolean).join(",");
  const kubectl = isPod ? [w.name] : ["-l", labels, "--prefix", "--max-log-requests", String(maxSources)];
  const atoll = isPod ? [w.name] : [`${w.kind.toLowerCase()}/${w.name}`, ...(cluster ? ["--clusters", cluster] : [])];
  return [
    commandOf("kubectl", "logs", "-f", "-n", w.namespace, ...kubectl, "--timestamps", ...bounds),
    commandOf("atoll", "logs", "-f", ...atoll, "-n", w.namespace, ...bounds),
  ].filter((c): c is string => c !== undefined);
}

/** So many sources have a button. A Job with thousands of pods has as many that have ended. */
export const maxButtons = 100;

/** Returns the indexes of the sources that have a button, in their order: those that a person hid, those that have not ended, and of the others the newest. */
export function sourcesWithButton(ended: readonly boolean[], hidden: ReadonlySet<number>): number[] {
  const all = ended.map((_, i) => i);
  const rank = (i: number) => (hidden.has(i) ? 0 : ended[i] ? 2 : 1);
  return all.sort((a, b) => rank(a) - rank(b) || b - a).slice(0, maxButtons).sort((a, b) => a - b);
}

/** So many containers are read at once. */
export const maxSources = 50;
