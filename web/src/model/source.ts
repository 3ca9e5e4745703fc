// What the console shows of a Source: its revision, its objects on the hub, and their clusters.

import type { Condition } from "../api/kubernetes";
import type { Source } from "../api/types.gen";
import { conditionOf } from "./cluster";
import type { Searchable } from "./filter";
import { formatSeconds } from "./time";

export type SourceState = "Failed" | "Drifted" | "Progressing" | "Suspended" | "Unknown" | "Ready";

export const sourceStates: readonly SourceState[] = ["Failed", "Drifted", "Progressing", "Suspended", "Unknown", "Ready"];

export interface SourceRow {
  key: string;
  namespace: string;
  name: string;
  state: SourceState;
  reason: string;
  message: string;
  since?: string;
  repository: string;
  revision: string;
  /** The first line of the commit's message, and its author. */
  commit: string;
  author: string;
  objects: number;
  ready: number;
  desired: number;
  source: Source;
}

/** Returns the state of a Source and the condition that gives it: the first that is not as it should be. */
export function sourceState(s: Source): { state: SourceState; condition?: Condition } {
  const conditions = s.status?.conditions as Condition[] | undefined;
  const of = (type: string) => conditionOf(conditions, type);
  const rendered = of("Rendered");
  const ready = of("Ready");
  if (s.spec.suspend || rendered?.reason === "Suspended") return { state: "Suspended", condition: rendered };
  for (const type of ["Rendered", "Applied"]) {
    const c = of(type);
    if (c?.status === "False") return { state: "Failed", condition: c };
  }
  const inSync = of("InSync");
  if (inSync?.status === "False") return { state: "Drifted", condition: inSync };
  if (ready?.status === "True") return { state: "Ready", condition: ready };
  return { state: ready?.status === "False" ? "Progressing" : "Unknown", condition: ready };
}

export function sourceRow(s: Source): SourceRow {
  const { state, condition } = sourceState(s);
  const st = s.status;
  return {
    key: (s.metadata.namespace ?? "") + "/" + s.metadata.name, namespace: s.metadata.namespace ?? "", name: s.metadata.name, source: s,
    state, reason: condition?.reason ?? "", message: condition?.message ?? "", since: condition?.lastTransitionTime ?? s.metadata.creationTimestamp,
    repository: s.spec.repository, revision: st?.shortCommit ?? "", commit: st?.message ?? "", author: st?.author ?? "",
    objects: st?.objects?.total ?? 0, ready: st?.clusters?.ready ?? 0, desired: st?.clusters?.desired ?? 0,
  };
}

export function searchSource(r: SourceRow): Searchable {
  return {
    words: [r.name, r.namespace, r.repository, r.revision, r.commit, r.author, r.reason],
    fields: { name: [r.name], namespace: [r.namespace], ns: [r.namespace], status: [r.state], reason: [r.reason], repository: [r.repository], author: [r.author] },
  };
}

/** Returns what of the Repository a Source reads, in a few words. */
export function describeRef(ref: Source["spec"]["ref"]): string {
  if (ref.chart) return `${ref.chart} ${ref.version ?? ""}`.trim();
  return ref.branch ?? ref.tag ?? ref.version ?? ref.commit?.slice(0, 12) ?? ref.digest?.slice(0, 19) ?? "";
}

/** Returns the time of a request to synchronise: whole seconds, and later than the one before, so that each is honoured. */
export function nextSyncRequest(now: Date, before: string | undefined): string {
  let at = Math.floor(now.getTime() / 1000) * 1000;
  const last = before === undefined ? NaN : Date.parse(before);
  if (at <= last) at = Math.floor(last / 1000) * 1000 + 1000;
  return formatSeconds(new Date(at));
}
