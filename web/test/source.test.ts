// Tests of what is shown of Sources.

import assert from "node:assert/strict";
import { test } from "node:test";
import { suspendWrite, syncWrite } from "../src/api/actions";
import type { Source } from "../src/api/types.gen";
import { matchesFilter, parseFilter } from "../src/model/filter";
import { listWaits } from "../src/model/waits";
import { describeRef, nextSyncRequest, searchSource, sourceRow, sourceState } from "../src/model/source";

const time = "2026-11-29T12:00:00Z";

function condition(type: string, status: "True" | "False" | "Unknown", reason: string) {
  return { type, status, reason, message: reason + " message", lastTransitionTime: time };
}

function source(spec: Partial<Source["spec"]>, ...conditions: ReturnType<typeof condition>[]): Source {
  return {
    metadata: { name: "web", namespace: "shop", uid: "u" }, spec: { repository: "repo", ref: { branch: "main" }, ...spec },
    status: { conditions, shortCommit: "1f0c9d2e7ab4", message: "the shop opens", author: "Aiko", objects: { total: 2 }, clusters: { ready: 1, desired: 3 } },
  };
}

const well = [condition("Rendered", "True", "Rendered"), condition("Applied", "True", "Applied"), condition("InSync", "True", "InSync")];

test("a Source has the state of the first condition that is not as it should be", () => {
  const state = (...c: ReturnType<typeof condition>[]) => sourceState(source({}, ...c)).state;
  assert.equal(state(...well, condition("Ready", "True", "Ready")), "Ready");
  assert.equal(state(...well, condition("Ready", "False", "Progressing")), "Progressing");
  assert.equal(state(), "Unknown");
  assert.equal(state(condition("Rendered", "Unknown", "NotDetermined"), condition("Ready", "Unknown", "NotDetermined")), "Unknown");
  assert.equal(state(condition("Rendered", "False", "ContentInvalid"), condition("Ready", "True", "Ready")), "Failed");
  assert.equal(state(well[0]!, condition("Applied", "False", "OwnedByOthers"), condition("InSync", "False", "ChangedOnHub")), "Failed");
  assert.equal(state(well[0]!, well[1]!, condition("InSync", "False", "ChangedOnHub"), condition("Ready", "True", "Ready")), "Drifted");
  assert.equal(sourceState(source({ suspend: true }, ...well, condition("Ready", "True", "Ready"))).state, "Suspended");
  assert.equal(state(condition("Rendered", "False", "Suspended")), "Suspended");
});

test("a Source is found by its commit, author and repository", () => {
  const row = sourceRow(source({}, ...well, condition("Ready", "True", "Ready")));
  assert.deepEqual([row.key, row.ready, row.desired, row.objects, row.reason, row.since], ["shop/web", 1, 3, 2, "Ready", time]);
  for (const [text, found] of [["shop opens", true], ["author:aiko", true], ["repository:repo status:ready", true], ["ns:other", false], ["1f0c9d", true], ["-web", false]] as const) {
    assert.equal(matchesFilter(parseFilter(text), searchSource(row)), found, text);
  }
});

test("what a Source reads has few words", () => {
  assert.equal(describeRef({ branch: "main" }), "main");
  assert.equal(describeRef({ tag: "v1" }), "v1");
  assert.equal(describeRef({ commit: "0123456789abcdef0123456789abcdef01234567" }), "0123456789ab");
  assert.equal(describeRef({ chart: "shop", version: "1.x" }), "shop 1.x");
  assert.equal(describeRef({ digest: "sha256:0123456789abcdef" }), "sha256:0123456789ab");
});

test("each request to synchronise is a later one", () => {
  const now = new Date("2026-11-29T12:00:00.700Z");
  assert.equal(nextSyncRequest(now, undefined), "2026-11-29T12:00:00Z");
  assert.equal(nextSyncRequest(now, "2026-11-29T11:59:59Z"), "2026-11-29T12:00:00Z");
  assert.equal(nextSyncRequest(now, "2026-11-29T12:00:00Z"), "2026-11-29T12:00:01Z");
  assert.equal(nextSyncRequest(now, "2026-11-29T12:00:05Z"), "2026-11-29T12:00:06Z");
  assert.equal(nextSyncRequest(now, "no time"), "2026-11-29T12:00:00Z");
});

test("writes are of the Source that was shown", () => {
  const s = source({ syncRequest: time });
  const sync = syncWrite(s, new Date(time));
  assert.equal(sync.path, "/apis/atoll.dev/v1alpha1/namespaces/shop/sources/web?fieldManager=atoll-console&fieldValidation=Strict");
  assert.deepEqual(JSON.parse(sync.body), { metadata: { uid: "u" }, spec: { syncRequest: "2026-11-29T12:00:01Z" } });
  assert.deepEqual(JSON.parse(suspendWrite(s, true).body), { metadata: { uid: "u" }, spec: { suspend: true } });
  assert.deepEqual(JSON.parse(suspendWrite(s, false).body), { metadata: { uid: "u" }, spec: { suspend: null } });
});

test("a Source waits for a person that can mend it", () => {
  const actorOf = (reason: string) => (reason === "BuildFailed" ? "Atoll" : "the application's owner");
  const waits = (...c: ReturnType<typeof condition>[]) => listWaits([], [], actorOf, [sourceRow(source({}, ...c))]).map((w) => [w.kind, w.name, w.reason, w.actor]);
  assert.deepEqual(waits(condition("Rendered", "False", "ContentInvalid")), [["source", "web", "ContentInvalid", "the application's owner"]]);
  assert.deepEqual(waits(...well.slice(0, 2), condition("InSync", "False", "ChangedOnHub")), [["source", "web", "ChangedOnHub", "the application's owner"]]);
  assert.deepEqual(waits(condition("Rendered", "False", "BuildFailed")), []);
  assert.deepEqual(waits(...well, condition("Ready", "False", "Progressing")), []);
});
