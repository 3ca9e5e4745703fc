// Tests of the decision about a cluster that waits to join.

import assert from "node:assert/strict";
import { test } from "node:test";
import { type JoinOffer, acceptJoin, isSameOffer, readJoinOffer } from "../src/api/joins";
import type { Cluster } from "../src/api/types.gen";
import { hashRequestKey } from "../src/model/keyhash";

// Both requests and hashes are by openssl: `openssl req -new -key K -subj /CN=oslo`, `openssl pkey -in K -pubout -outform DER | sha256sum`.
const elliptic = {
  request: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISk1IRUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWIzTnNiekJaTUJNR0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSApBMElBQkVUZjVRTTc0Y00vMXJ4TGJ5KzhpNjFGWXVVUHcxNWkzeTRxeFBDdmtZZ3oxWWxDOHBhVVlkZ3NyVHl4Cm9HRExpa0hKUGZVeDZtSExtemsrRVlNMDNQMmdBREFLQmdncWhrak9QUVFEQWdOSUFEQkZBaUVBa2FuY01EUzcKRnVwKzd3T0M1KzBlYk8vODl5NGdUNEtNdEJuakZkRXBZeEVDSUZIZEg3UkRYUmxGZGMzU1BWTnEwMWRqenc1dwpuNVRqdHFtL0xaNnFxbXd0Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=",
  hash: "sha256:386b30a60c508e720f96714d8a0f1b827038d11cd575e9b24316950b04cbd881",
};
const rsa = {
  request: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQ1ZEQ0NBVHdDQVFBd0R6RU5NQXNHQTFVRUF3d0ViM05zYnpDQ0FTSXdEUVlKS29aSWh2Y05BUUVCQlFBRApnZ0VQQURDQ0FRb0NnZ0VCQUo0Yytpa0RVZGFFSDU5RVcydUVSNTB1azJMSlpYMVJKTWJNWWdzUXNwc05yL3FtCmp2SjVGU2tMNzRlWnBDUWhjZXRlMnhnaXY1THlMblJqanRYY3doRDZ1N2NIR1VIMFpLTFdMT3l0T3pnSmhTN0IKTkN4QjByNk0zNnlBdVY0QVRJV1BVQ24wY1BKYTRMTHZjcGlXYUxmWFlRcW5nZ3VxWmZKY1hkWG9qbVlkWTB5TAp1M1pjeDgxNURwR0R3ck1MaWVQOWlVdjBGR25RRnEzeExUZE1Fa0dxYzlxcklsdlhJMmhUTktZd0t1M2hldElNCnhFSzlIVHRJU1hUZHFhSjNvdEsvWlEvVGxUWnp4UmdzQjNzeE9ZZXozYklUaExkL2N2a3luQmUxdFdraFIxQQo4MGJyS01IMGsxWUFuOGRHQzVqMWhWVFVjVEI2c0NYNk8wMVcrek1DQXdFQUFhQUFNQTBHQ1NxR1NJYjNEUUVCCkN3VUFBNElCQVFBR2NvZVZSd3NLNTc5VXVGUTRYWW5ZczJQMDcxcnk5SGtqeUZmTm13S0ZqZHdRUWxkb3pBZGcKeENiaXFWQjYvUkQ0WHI4bmtyMy9ubnZNd2UrQW5XSGFOL3JhNForTVVYak1XTEh2aGR2akRXdFJOTkZuZlgwNApVamx0czFXRG9sK2pFc25iUjM5b1BEdFNVYlRjaDlwdWV5MlhTUlVJQzFLLzRYM2c1Z0wrOXFLNnlOZFFyK3A1ClFMMjFVSm1EMitaRmVuRENVKzcwSEtac2JJb3p3NXgvcWJLSFFZUnVuYmpNQVZkZXJYM0c0UERKREpqUllzQzcKS3EzTy9pcnJVdEZHWVhrdDdHMlJ3NUxlMVFOYjNXbmpMTElvM1VING9zTVN1OFFXMUVZWVRFMjF2ZzlEd25CUlAKUkV4QjRxei9NcWdoeVdxbjI3VVFnZXlFUGxDdnVQSnMKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==",
  hash: "sha256:5ab8e493faab5e92f91069be24cc76b5e707dcf9ded5060ba959c5ef78f8de44",
};

test("the hash of a request's key is that of the agent", async () => {
  assert.equal(await hashRequestKey(elliptic.request), elliptic.hash);
  const pem = atob(elliptic.request);
  const damaged = [pem.replace("REQUEST", "OTHER"), pem.slice(0, 60) + pem.slice(90), pem.replace("MIHJ", "MIHK"), "-----BEGIN CERTIFICATE REQUEST-----\nMIIC\n-----END CERTIFICATE REQUEST-----", pem + pem, ""];
  for (const text of ["%", "A".repeat(9000), ...damaged.map(btoa)]) assert.equal(await hashRequestKey(text), "", text.slice(0, 80));
});

const oslo = { metadata: { name: "oslo", uid: "c1", resourceVersion: "3", annotations: { "atoll.dev/agent-key": elliptic.hash + ".aabb" } }, spec: {} } as unknown as Cluster;

function request(name: string, key: { request: string }, more: object = {}) {
  return {
    metadata: { name, uid: "uid-" + name, creationTimestamp: "2026-11-29T12:00:00Z", annotations: { "atoll.dev/cluster-uid": "c1", "atoll.dev/requested-from": "203.0.113.7:4711" } },
    spec: { signerName: "atoll.dev/agent", request: key.request }, ...more,
  };
}

/** Runs a function against a hub that holds the requests, and returns the writes. */
async function against(items: object[], run: () => Promise<unknown>): Promise<string[]> {
  const writes: string[] = [];
  const before = globalThis.fetch;
  globalThis.fetch = (async (path: string, init: RequestInit) => {
    if (init.method) writes.push(`${init.method} ${path.split("?")[0]!.split("/").slice(-2).join("/")}`);
    return new Response(JSON.stringify({ metadata: {}, items }));
  }) as typeof fetch;
  try {
    await run();
  } finally {
    globalThis.fetch = before;
  }
  return writes;
}

async function offerOf(items: object[]): Promise<JoinOffer> {
  let offer: JoinOffer | undefined;
  await against(items, async () => void (offer = await readJoinOffer(oslo)));
  return offer!;
}

test("an offer has the key, the address and the time of each undecided request", async () => {
  const decided = request("old", elliptic, { status: { conditions: [{ type: "Denied" }] } });
  const foreign = { ...request("foreign", elliptic), metadata: { ...request("foreign", elliptic).metadata, annotations: { "atoll.dev/cluster-uid": "c0" } } };
  const offer = await offerOf([request("a", elliptic), decided, foreign]);
  assert.deepEqual([offer.clusterUID, offer.noted], ["c1", elliptic.hash]);
  assert.deepEqual(offer.requests.map((r) => [r.uid, r.hash, r.from, r.since]), [["uid-a", elliptic.hash, "203.0.113.7:4711", "2026-11-29T12:00:00Z"]]);
});

test("a cluster is accepted with exactly the request that was shown", async () => {
  const shown = await offerOf([request("a", elliptic)]);
  assert.deepEqual(await against([request("a", elliptic)], () => acceptJoin(oslo, shown, shown.requests[0])), ["PATCH clusters/oslo", "PUT a/approval"]);
  const newer = { ...oslo, metadata: { ...oslo.metadata, annotations: { "atoll.dev/agent-key": rsa.hash + ".aabb" } } } as Cluster;
  const again = { ...oslo, metadata: { ...oslo.metadata, uid: "c2" } } as Cluster;
  for (const [now, cluster] of [[[request("a", elliptic), request("b", rsa)], oslo], [[request("b", rsa)], oslo], [[], oslo], [[request("a", rsa)], oslo], [[request("a", elliptic)], newer], [[request("a", elliptic)], again]] as const) {
    const writes = await against([...now], () => assert.rejects(acceptJoin(cluster, shown, shown.requests[0]), { reason: "JoinChanged" }));
    assert.deepEqual(writes, []);
  }
  assert.ok(!isSameOffer(shown, { ...shown, noted: "" }));
});

test("a cluster that a person has created lets in the agent that requests it", async () => {
  const noted = async (annotations: Record<string, string>) => {
    let offer: JoinOffer | undefined;
    await against([request("a", elliptic)], async () => void (offer = await readJoinOffer({ ...oslo, metadata: { ...oslo.metadata, annotations } } as Cluster)));
    return offer!.noted;
  };
  assert.equal(await noted({ "atoll.dev/next-agent-key": elliptic.hash + ".aabb" }), elliptic.hash);
  // Acceptance would let the agent of the cluster's own key in, too: the request of another one is not offered.
  assert.equal(await noted({ "atoll.dev/agent-key": rsa.hash + ".aabb", "atoll.dev/next-agent-key": elliptic.hash + ".aabb" }), rsa.hash);
  assert.equal(await noted({}), "");
});
