// The requests by which a person acts: the same that kubectl and the atoll command make.

import { RequestError, type Write, sendWriteText } from "./client";
import type { CertificateRequest, KubeObject, ObjectMeta } from "./kubernetes";
import { nextSyncRequest } from "../model/source";
import { formatSeconds } from "../model/time";
import type { Bundle, Cluster, HubSettings, Source } from "./types.gen";

export const group = "/apis/atoll.dev/v1alpha1";
export const clustersPath = `${group}/clusters`;
const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/** The field manager of what people change in the console, and that of dry runs, to which the hub adds no preview of its own. */
const manager = "atoll-console";
const planManager = "atoll-plan";

/** Returns the path of a resource in a namespace. */
export function inNamespace(resource: string, namespace: string): string {
  return `${group}/namespaces/${encodeURIComponent(namespace)}/${resource}`;
}

export function bundlePath(o: ObjectMeta): string {
  const name = encodeURIComponent(o.name);
  return o.namespace ? `${inNamespace("bundles", o.namespace)}/${name}` : `${group}/clusterbundles/${name}`;
}

export function clusterPath(name: string): string {
  return `${clustersPath}/${encodeURIComponent(name)}`;
}

function patchOf(path: string, patch: unknown): Write {
  return { method: "PATCH", path: `${path}?fieldManager=${manager}&fieldValidation=Strict`, body: JSON.stringify(patch) };
}

/** Returns the write that confirms exactly the plan of this hash. */
export function confirmWrite(b: Bundle, hash: string): Write {
  return patchOf(bundlePath(b.metadata), { metadata: { uid: b.metadata.uid, annotations: { "atoll.dev/confirm": hash } } });
}

/** Returns the write that approves a revision for a stage. Another approval at the same time is not lost. */
export function approveWrite(b: Bundle, stage: string, revision: string): Write {
  const approvals = [...(b.spec.approvals ?? []), { stage, revision }];
  return patchOf(bundlePath(b.metadata), { metadata: { uid: b.metadata.uid, resourceVersion: b.metadata.resourceVersion }, spec: { approvals } });
}

/** Returns the write that resumes a rollout. The hub writes its own time and the person. */
export function resumeWrite(b: Bundle, now: Date): Write {
  const at = formatSeconds(now);
  return patchOf(bundlePath(b.metadata), { metadata: { uid: b.metadata.uid }, spec: { pause: null, resume: { at } } });
}

/** Returns the write that keeps all clusters at their revision. */
export function pauseWrite(b: Bundle, message: string): Write {
  return patchOf(bundlePath(b.metadata), { metadata: { uid: b.metadata.uid }, spec: { pause: { reason: null, message: message === "" ? null : message } } });
}

export const settingsPath = `${group}/hubsettings`;

/** Returns the write that lifts exactly the freeze that was shown. */
export function liftFreezeWrite(s: HubSettings): Write {
  const { name, uid, resourceVersion } = s.metadata;
  return patchOf(`${settingsPath}/${encodeURIComponent(name)}`, { metadata: { uid, resourceVersion }, spec: { freeze: null } });
}

function sourcePath(o: ObjectMeta): string {
  return `${inNamespace("sources", o.namespace ?? "")}/${encodeURIComponent(o.name)}`;
}

/** Returns the write that requests a check of the Repository, and the application of each object. */
export function syncWrite(s: Source, now: Date): Write {
  return patchOf(sourcePath(s.metadata), { metadata: { uid: s.metadata.uid }, spec: { syncRequest: nextSyncRequest(now, s.spec.syncRequest) } });
}

/** Returns the write that stops a Source, or lets it go on. */
export function suspendWrite(s: Source, suspend: boolean): Write {
  return patchOf(sourcePath(s.metadata), { metadata: { uid: s.metadata.uid }, spec: { suspend: suspend ? true : null } });
}

/** Returns the write that approves the correction of drift, by its IDs. */
export function correctDriftWrite(b: Bundle, ids: readonly string[]): Write {
  return patchOf(bundlePath(b.metadata), { metadata: { uid: b.metadata.uid, annotations: { "atoll.dev/correct-drift": ids.join(",") } } });
}

/** Returns the write that decides on a request of an agent. */
export function decisionWrite(r: CertificateRequest, type: "Approved" | "Denied"): Write {
  const message = type === "Approved" ? "accepted with its cluster" : "denied with its cluster";
  const conditions = [...(r.status?.conditions ?? []), { type, status: "True", reason: "Atoll" + type, message }];
  const body = { ...r, apiVersion: "certificates.k8s.io/v1", kind: "CertificateSigningRequest", status: { ...r.status, conditions } };
  return { method: "PUT", path: `${requests}/${encodeURIComponent(r.metadata.name)}/approval`, body: JSON.stringify(body) };
}

/** Returns the write that sets whether a cluster belongs to the fleet; of exactly the Cluster that was read. */
export function acceptedWrite(c: Cluster, accepted: boolean): Write {
  return patchOf(clusterPath(c.metadata.name), { metadata: { uid: c.metadata.uid, resourceVersion: c.metadata.resourceVersion }, spec: { accepted } });
}

/** A change of one object that is planned first: what is applied has the same body. */
export interface Change {
  path: string;
  body: string;
  /** What the person wants, whatever version of the object it is planned over. */
  intent: string;
  /** The field manager of the write; that of the console where there is none. */
  manager?: string;
  /** What belongs to the write and follows it, with the object as the hub has stored it. */
  follow?: (stored: string) => Promise<void>;
}

/** Returns a change of exactly the version that was read. */
export function changeOf(path: string, o: KubeObject, patch: Record<string, unknown>): Change {
  const metadata = { ...(patch["metadata"] as object | undefined), uid: o.metadata.uid, resourceVersion: o.metadata.resourceVersion };
  return { path, body: JSON.stringify({ ...patch, metadata }), intent: path + " " + o.metadata.uid + " " + JSON.stringify(patch) };
}

/** Returns the text of what the API server would store; it validates, and nothing is written. */
export function dryRunChange(c: Change, signal?: AbortSignal): Promise<string> {
  return sendWriteText({ method: "PATCH", path: `${c.path}?dryRun=All&fieldManager=${planManager}&fieldValidation=Strict`, body: c.body }, signal);
}

/** Applies a change. A version that is not the planned one is refused with 409. */
export async function applyChange(c: Change): Promise<void> {
  const stored = await sendWriteText({ method: "PATCH", path: `${c.path}?fieldManager=${encodeURIComponent(c.manager ?? manager)}&fieldValidation=Strict`, body: c.body });
  try {
    await c.follow?.(stored);
  } catch (e) {
    throw new RequestError(0, "WrittenNotFollowed", e instanceof RequestError ? e.message : String(e)); // the write itself is done
  }
}
