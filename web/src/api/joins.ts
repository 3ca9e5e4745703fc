// Clusters that wait to join: the requests of their agents, and the decision about exactly the shown one.

import { acceptedWrite, decisionWrite } from "./actions";
import { RequestError, getJSON, sendWrite } from "./client";
import type { CertificateRequest, List } from "./kubernetes";
import type { Cluster } from "./types.gen";
import { hashRequestKey } from "../model/keyhash";

/** A request of an agent that waits for a decision. */
export interface JoinRequest {
  uid: string;
  /** The hash of its key; empty: it cannot be read. */
  hash: string;
  /** The address from which the hub got it; empty: a hub of an earlier version noted none. */
  from: string;
  since: string;
  request: CertificateRequest;
}

/** What a person compares before accepting. */
export interface JoinOffer {
  clusterUID: string;
  /** The hash of the key that the cluster lets in once it is accepted, as the hub has noted it; empty: there is none. */
  noted: string;
  requests: JoinRequest[];
}

const fromAnnotation = "atoll.dev/requested-from";
const keyAnnotation = "atoll.dev/agent-key";
/** A Cluster that a person has created has no key of its own, and the first agent requests to take it over. */
const nextKeyAnnotation = "atoll.dev/next-agent-key";

/** Returns the key that the cluster lets in once it is accepted. Beside a key of its own, acceptance would let that one in, too. */
function notedKey(c: Cluster): string {
  const sealed = c.metadata.annotations?.[keyAnnotation] || c.metadata.annotations?.[nextKeyAnnotation] || "";
  return sealed.split(".")[0]!;
}

/** Returns the requests of the cluster's agent that wait for a decision, the oldest first. */
async function listUndecided(c: Cluster, signal?: AbortSignal): Promise<CertificateRequest[]> {
  const list = await getJSON<List<CertificateRequest>>(`/apis/certificates.k8s.io/v1/certificatesigningrequests?labelSelector=${encodeURIComponent("atoll.dev/cluster=" + c.metadata.name)}`, signal);
  const isUndecided = (r: CertificateRequest) => !(r.status?.conditions ?? []).some((x) => x.type === "Approved" || x.type === "Denied");
  const own = (list.items ?? []).filter((r) => r.spec.signerName === "atoll.dev/agent" && r.metadata.annotations?.["atoll.dev/cluster-uid"] === c.metadata.uid && isUndecided(r));
  return own.sort((a, b) => ((a.metadata.creationTimestamp ?? "") < (b.metadata.creationTimestamp ?? "") ? -1 : 1));
}

/** Reads what waits for a decision about a cluster. */
export async function readJoinOffer(c: Cluster, signal?: AbortSignal): Promise<JoinOffer> {
  const requests = await Promise.all((await listUndecided(c, signal)).map(async (r) => ({
    uid: r.metadata.uid ?? "", hash: await hashRequestKey(r.spec.request ?? ""), from: r.metadata.annotations?.[fromAnnotation] ?? "", since: r.metadata.creationTimestamp ?? "", request: r,
  })));
  return { clusterUID: c.metadata.uid ?? "", noted: notedKey(c), requests };
}

/** Reports whether two offers are about the same cluster, the same noted key, and the same requests. */
export function isSameOffer(a: JoinOffer, b: JoinOffer): boolean {
  const identity = (o: JoinOffer) => JSON.stringify([o.clusterUID, o.noted, o.requests.map((r) => [r.uid, r.hash])]);
  return identity(a) === identity(b);
}

/**
 * Accepts a cluster with the request that was shown; without one, the cluster alone. Where another request has come since, or the
 * noted key is another one, nothing is written.
 */
export async function acceptJoin(c: Cluster, shown: JoinOffer, chosen?: JoinRequest): Promise<void> {
  if (!isSameOffer(shown, await readJoinOffer(c))) throw new RequestError(409, "JoinChanged", "");
  if (!c.spec.accepted) await sendWrite(acceptedWrite(c, true));
  if (chosen) await sendWrite(decisionWrite(chosen.request, "Approved"));
}

/** Denies a cluster that waits to join, with all requests of its agent. */
export async function denyJoin(c: Cluster): Promise<void> {
  const waiting = await listUndecided(c);
  if (c.spec.accepted) await sendWrite(acceptedWrite(c, false));
  for (const r of waiting) await sendWrite(decisionWrite(r, "Denied"));
}
