// Tests of what changes something: drafts, patches, rights, requests, and the sentences of a plan.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { acceptedWrite, applyChange, approveWrite, changeOf, confirmWrite, correctDriftWrite, decisionWrite, pauseWrite, resumeWrite } from "../src/api/actions";
import { RequestError, actAs, getPerson, sendWrite, signIn } from "../src/api/client";
import { countHidden } from "../src/api/drift";
import type { Right } from "../src/api/kubernetes";
import { type ItemChange, type Plan, type RowGroup, planChange } from "../src/api/plan";
import { RightChecker } from "../src/api/rights";
import { findTemplate, keyOfTemplate } from "../src/api/tree";
import { canUndo, readUndo } from "../src/api/undo";
import type { Bundle, Cluster } from "../src/api/types.gen";
import { appRow } from "../src/model/application";
import { clusterRow } from "../src/model/cluster";
import { canDrain, drainPatch, isDrained } from "../src/model/drain";
import { type Fields, editableObject, formatObject, getField, isDeep, mergePatch, draftOf, readText, setField, textAfterRead } from "../src/model/edit";
import { joinNames, planParts } from "../src/model/plan";
import { bundleCommand, commandOf } from "../src/model/shell";
import { listWaits, stagesToApprove } from "../src/model/waits";
import { en } from "../src/text/en";
import { describeError } from "../src/text/problem";
import { zh } from "../src/text/zh";

const readDraft = (text: string, before: Fields) => draftOf(readText(text), before);
const fieldOf = (text: string, path: (string | number)[]) => getField(readText(text).value, path);

const bundle = {
  metadata: { name: "web", namespace: "shop", uid: "u1", resourceVersion: "7" },
  spec: { conflictResolution: "Abort", source: { kind: "PropagationPolicy", name: "web" } },
} as unknown as Bundle;

const deployment: Fields = {
  apiVersion: "apps/v1", kind: "Deployment",
  metadata: {
    name: "web", namespace: "shop", uid: "u2", resourceVersion: "9", generation: 3, creationTimestamp: "2026-11-29T12:00:00Z", managedFields: [{ manager: "kubectl" }],
    annotations: { "kubectl.kubernetes.io/last-applied-configuration": "{}", note: "a\u202eb\u0007" },
  },
  spec: { replicas: 2, template: { spec: { containers: [{ name: "web", image: "web:1" }] } } },
  status: { readyReplicas: 2 },
};

test("a person edits what people state, and hostile characters are escapes", () => {
  const text = formatObject(editableObject(deployment));
  for (const hidden of ["uid", "resourceVersion", "managedFields", "last-applied", "status", "\u202e", "\u0007"]) assert.ok(!text.includes(hidden), hidden);
  assert.ok(text.includes("\\u202e"), text);
  assert.deepEqual(parse(text), editableObject(deployment));
  assert.deepEqual(readDraft(text, deployment), { patch: undefined });
});

test("texts of any kind come back as they were", () => {
  const values = ["", " ", "yes", "null", "1", "0x10", "1e3", "~", "a: b", "- a", "#", "a\nb\n", "\ta", "a\n\u202e b", "\ud800", "\u{e0041}", "'\"\\", "&a *b", "%x", "<img src=x>", "\u2028", "\u0085", "---", "a\r\nb", "\u00ad", "é"];
  for (const value of values) {
    const o = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a" }, data: { [value || "empty"]: value } };
    const text = formatObject(o);
    assert.deepEqual(parse(text), o, JSON.stringify(value));
    assert.doesNotMatch(text, /[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
  }
});

test("a draft is the merge patch of what changed", () => {
  const text = formatObject(editableObject(deployment));
  const cases: [string, Fields | undefined][] = [
    [text.replace("replicas: 2", "replicas: 3"), { spec: { replicas: 3 } }],
    [text.replace("image: web:1", "image: web:2"), { spec: { template: { spec: { containers: [{ name: "web", image: "web:2" }] } } } }],
    [text.replace("  replicas: 2\n", ""), { spec: { replicas: null } }],
    [text + "extra: {a: [1]}\n", { extra: { a: [1] } }],
    [text.replace("namespace: shop", "namespace: shop\n  labels: {a: b}"), { metadata: { labels: { a: "b" } } }],
    [text + "\n# a comment\n", undefined],
  ];
  for (const [edited, patch] of cases) assert.deepEqual(readDraft(edited, deployment), { patch }, edited);
});

test("a draft that is not of this object has a problem", () => {
  const text = formatObject(editableObject(deployment));
  const bomb = `${text}a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n`;
  const cases: [string, string][] = [
    ["a: [", "syntax"], [bomb, "syntax"], [text + "kind: Deployment\n", "syntax"], [text + "---\na: b\n", "many"], ["", "many"], ["- a", "identity"], ["a: b", "identity"],
    [text.replace("kind: Deployment", "kind: Role"), "identity"], [text.replace("name: web", "name: other"), "identity"], [text.replace("namespace: shop", "namespace: other"), "identity"],
    [text.replace("namespace: shop", "namespace: shop\n  resourceVersion: \"1\""), "identity"], [text + "status: {}\n", "identity"], ["x".repeat((1 << 20) + 1), "large"],
  ];
  for (const [edited, problem] of cases) {
    const draft = readDraft(edited, deployment);
    assert.deepEqual([draft.problem, draft.patch], [problem, undefined], edited.slice(0, 80));
  }
});

test("a value that JSON does not carry is refused, not removed or changed", () => {
  const text = formatObject(editableObject(deployment));
  for (const value of [".inf", "-.inf", ".nan", "9007199254740993", "[1, 9007199254740993]", "{a: [.inf]}"]) {
    assert.deepEqual(readDraft(text.replace("replicas: 2", "replicas: " + value), deployment), { problem: "value" }, value);
  }
  for (const value of ["!!binary aGk=", "!!set {a}", "!!timestamp 2001-01-01"]) assert.equal(readDraft("%YAML 1.1\n---\n" + text.replace("replicas: 2", "replicas: " + value), deployment).problem, "value", value);
  const large = { ...deployment, spec: { list: [2 ** 60, 1], other: 1 } };
  assert.deepEqual(readDraft(formatObject(editableObject(large)).replace("other: 1", "other: 2"), large), { patch: { spec: { other: 2 } } });
  assert.equal(readDraft(formatObject(editableObject(large)).replace("- 1\n", "- 3\n"), large).problem, "value");
});

test("what a person writes while an edit is applied stays", () => {
  assert.deepEqual([textAfterRead("a", "a", "b"), textAfterRead("a2", "a", "b"), textAfterRead("a2", undefined, "b")], ["b", "a2", "b"]);
});

test("annotations that go do not take along what is not shown", () => {
  const text = formatObject(editableObject(deployment));
  assert.ok(/\n  annotations:\n    note: .*\n/.test(text), text);
  assert.deepEqual(readDraft(text.replace(/\n  annotations:\n    note: .*\n/, "\n"), deployment), { patch: { metadata: { annotations: { note: null } } } });
});

test("what nests too deep for the library is refused before it is read", () => {
  for (const open of ["a: " + "[".repeat(300_000), "a: " + "{a: ".repeat(100_000), "- ".repeat(50_000), "? ".repeat(50_000), "a: " + "[\n".repeat(1000), " ".repeat(401) + "a: b"]) {
    assert.equal(readDraft(open, deployment).problem, "deep", open.slice(0, 10));
  }
  const nest = (levels: number): Fields => Array.from({ length: levels }).reduce<Fields>((inner) => ({ a: inner }), {});
  assert.deepEqual([isDeep(nest(199)), isDeep(nest(200)), isDeep(nest(9000)), isDeep("a")], [false, true, true, false]);
  const deepest = { ...deployment, spec: nest(195) };
  assert.deepEqual(readDraft(formatObject(editableObject(deepest)), deepest), { patch: undefined });
  const script = { ...deployment, data: { run: "[{".repeat(90) + "\n" + "-".repeat(900) + "\n" + "[]{}".repeat(500) } };
  assert.deepEqual(readDraft(formatObject(editableObject(script)), script), { patch: undefined });
});

/** Applies a merge patch as RFC 7386 does. */
function applyPatch(before: unknown, patch: Fields): Fields {
  const out: Fields = typeof before === "object" && before !== null && !Array.isArray(before) ? { ...(before as Fields) } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key];
    else out[key] = typeof value === "object" && !Array.isArray(value) ? applyPatch(out[key], value as Fields) : value;
  }
  return out;
}

test("a patch leads from one object to the other, whatever they are", () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
  const value = (depth: number): unknown => {
    const kind = random(depth > 3 ? 3 : 5);
    if (kind === 0) return random(3);
    if (kind === 1) return "t" + random(2);
    if (kind === 2) return random(2) === 0;
    if (kind === 3) return Array.from({ length: random(3) }, () => value(depth + 1));
    return fields(depth + 1);
  };
  const fields = (depth: number): Fields => Object.fromEntries(Array.from({ length: random(4) }, () => ["abcd"[random(4)]!, value(depth)]));
  for (let i = 0; i < 3000; i++) {
    const [before, after] = [fields(0), fields(0)];
    const patch = mergePatch(before, after);
    assert.deepEqual(patch ? applyPatch(before, patch) : before, after);
    assert.equal(mergePatch(after, after), undefined);
  }
  assert.equal(JSON.stringify(mergePatch({}, JSON.parse('{"__proto__":{"a":1}}'))), '{"__proto__":{"a":1}}');
});

test("forms write into the text", () => {
  const text = formatObject(editableObject(deployment));
  const scaled = setField(text, ["spec", "replicas"], 5);
  assert.deepEqual(readDraft(scaled, deployment).patch, { spec: { replicas: 5 } });
  assert.equal(fieldOf(scaled, ["spec", "replicas"]), 5);
  assert.deepEqual(readDraft(setField(scaled, ["spec", "replicas"], undefined), deployment).patch, { spec: { replicas: null } });
  assert.equal(fieldOf(text, ["spec", "template", "spec", "containers", 0, "image"]), "web:1");
  assert.equal(fieldOf(text, ["spec", "constructor"]), undefined);
  assert.equal(setField("a: [", ["a"], 1), "a: [");
  const shared = "base: &b {replicas: 1}\nspec: *b\n";
  assert.equal(setField(shared, ["spec", "replicas"], 5), shared);
  assert.ok(!setField(text, ["spec", "replicas"], 3).includes("\u202e"));
});

test("requests are those of the command", () => {
  const body = (w: { body: string }) => JSON.parse(w.body) as unknown;
  const path = "/apis/atoll.dev/v1alpha1/namespaces/shop/bundles/web?fieldManager=atoll-console&fieldValidation=Strict";
  assert.deepEqual([confirmWrite(bundle, "a1").method, confirmWrite(bundle, "a1").path], ["PATCH", path]);
  assert.deepEqual(body(confirmWrite(bundle, "a1")), { metadata: { uid: "u1", annotations: { "atoll.dev/confirm": "a1" } } });
  const approved = { ...bundle, spec: { ...bundle.spec, approvals: [{ stage: "a", revision: "r1", by: "bo" }] } };
  assert.deepEqual(body(approveWrite(approved, "b", "r2")), { metadata: { uid: "u1", resourceVersion: "7" }, spec: { approvals: [{ stage: "a", revision: "r1", by: "bo" }, { stage: "b", revision: "r2" }] } });
  assert.deepEqual(body(resumeWrite(bundle, new Date("2026-11-29T12:00:00.5Z"))), { metadata: { uid: "u1" }, spec: { pause: null, resume: { at: "2026-11-29T12:00:00Z" } } });
  assert.deepEqual(body(pauseWrite(bundle, "")), { metadata: { uid: "u1" }, spec: { pause: { reason: null, message: null } } });
  assert.deepEqual(body(correctDriftWrite(bundle, ["a", "b"])), { metadata: { uid: "u1", annotations: { "atoll.dev/correct-drift": "a,b" } } });
  assert.ok(confirmWrite({ ...bundle, metadata: { name: "a/../b" } }, "x").path.startsWith("/apis/atoll.dev/v1alpha1/clusterbundles/a%2F..%2Fb?"));
  const joining = { metadata: { name: "oslo", uid: "c1", resourceVersion: "3" }, spec: {} } as Cluster;
  assert.deepEqual(body(acceptedWrite(joining, true)), { metadata: { uid: "c1", resourceVersion: "3" }, spec: { accepted: true } });
  const decided = decisionWrite({ metadata: { name: "r" }, spec: { signerName: "atoll.dev/agent" } }, "Denied");
  assert.equal(decided.path, "/apis/certificates.k8s.io/v1/certificatesigningrequests/r/approval");
  assert.deepEqual((body(decided) as { status: unknown }).status, { conditions: [{ type: "Denied", status: "True", reason: "AtollDenied", message: "denied with its cluster" }] });
  const change = changeOf("/p", bundle, { metadata: { labels: { a: "b" } }, spec: { x: 1 } });
  assert.deepEqual(JSON.parse(change.body), { metadata: { labels: { a: "b" }, uid: "u1", resourceVersion: "7" }, spec: { x: 1 } });
  assert.equal(changeOf("/p", { metadata: { ...bundle.metadata, resourceVersion: "8" } }, { spec: { x: 1 } }).intent, changeOf("/p", bundle, { spec: { x: 1 } }).intent);
});

test("a cluster is drained and given back by its taints", () => {
  const of = (...taints: { key: string; value?: string; effect: string }[]) => ({ metadata: { name: "oslo" }, spec: { taints } }) as unknown as Cluster;
  const own = { key: "gpu", effect: "NoSchedule" };
  const drain = { key: "atoll.dev/drain", effect: "NoExecute" };
  const cordon = { key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" };
  assert.deepEqual(drainPatch(of(own), true), { spec: { taints: [own, drain] } });
  assert.deepEqual(drainPatch(of(own, drain, cordon), false), { spec: { taints: [own] } });
  assert.deepEqual(drainPatch(of(drain), false), { spec: { taints: null } });
  assert.deepEqual(drainPatch(of(drain), true), { spec: { taints: [drain] } });
  assert.deepEqual([canDrain(of(own)), canDrain(of(cordon)), canDrain(of(cordon, drain))], [true, true, false]);
  assert.deepEqual(drainPatch(of(cordon), true), { spec: { taints: [cordon, drain] } });
  assert.deepEqual([isDrained(of(own)), isDrained(of(cordon)), isDrained(of(drain)), isDrained({ metadata: { name: "a" }, spec: {} } as Cluster)], [false, true, true, false]);
});

test("everything that waits is listed, each with what a person can do", () => {
  const time = "2026-11-29T12:00:00Z";
  const b = {
    ...bundle,
    spec: { ...bundle.spec, pause: { by: "bo", message: "slow", since: time }, rollout: { stages: [{ name: "eu", clusters: {}, gatesBefore: [{ name: "ok", approval: {} }, { name: "later", wait: "1h" }] }] } },
    status: {
      revision: "web-r2", waitsFor: "x", wait: { reason: "WaitsForConfirmation", actor: "a person that may confirm removals", since: time },
      conditions: [{ type: "RemovalHeld", status: "True", reason: "RemovalHeld", message: "plan a1", lastTransitionTime: time }],
      rollout: { reason: "StageFailed", since: time, gates: [{ stage: "eu", name: "ok", state: "Waiting", since: time }, { stage: "eu", name: "later", state: "Waiting", since: time }] },
    },
  } as unknown as Bundle;
  assert.deepEqual(stagesToApprove(b), [{ stage: "eu", since: time }]);
  const auto = { spec: { rollout: { autoStages: [1, "50%"], autoStageOptions: { gatesBefore: [{ name: "ok", approval: {} }] } } }, status: { rollout: { gates: [{ stage: "auto 50%", name: "ok", state: "Waiting", since: time }] } } } as unknown as Bundle;
  assert.deepEqual(stagesToApprove(auto), [{ stage: "auto 50%", since: time }]);
  const cluster = (name: string, spec: object, ...conditions: object[]) => clusterRow({ metadata: { name }, spec, status: { conditions } } as unknown as Cluster);
  const condition = (type: string, status: string, reason: string) => ({ type, status, reason, message: "m", lastTransitionTime: "2026-11-30T00:00:00Z" });
  const clusters = [
    cluster("new", {}, condition("Accepted", "False", "WaitsForAdministrator")),
    cluster("full", { accepted: true }, condition("Ready", "True", "AgentConnected"), condition("Draining", "True", "CannotLeave")),
    cluster("fine", { accepted: true }, condition("Ready", "True", "AgentConnected"), condition("Draining", "False", "Drained")),
  ];
  const waits = listWaits(clusters, [appRow(b)], (reason) => (reason === "AgentConnected" ? "none" : "the owner"));
  assert.deepEqual(waits.map((w) => [w.name, w.action, w.reason, w.stage ?? ""].join(" ")).sort(), [
    "full look CannotLeave ", "new join WaitsForAdministrator ", "web approve WaitsForApproval eu", "web confirm WaitsForConfirmation ", "web resume RolloutPaused ", "web resume StageFailed ",
  ]);
  assert.equal(new Set(waits.map((w) => w.key)).size, waits.length);
});

test("an undo is what the hub says, over exactly the version that was read, with its numbers", async () => {
  const present = '{"kind":"Deployment","metadata":{"name":"web","resourceVersion":"30"},"spec":{"n":9007199254740993}}';
  const patch = '{"metadata":{"resourceVersion":"30","uid":"u"},"spec":{"n":9007199254740995}}';
  const sent: string[] = [];
  let conflicts = 1;
  const hub = async (path: string, init: RequestInit) => {
    const method = init.method ?? "GET";
    const address = path.replace("/console/api", "");
    if (method !== "GET") sent.push(`${method} ${address} ${init.body as string}`);
    const answer = (body: string, status = 200) => new Response(body, { status });
    if (address === "/apis/apps") return answer('{"preferredVersion":{"version":"v1"}}');
    if (address === "/apis/apps/v1") return answer('{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}');
    if (method === "GET") return answer(present);
    if (method === "POST") return answer((init.body as string).includes('"live"') ? '{"manager":"argo cd","owners":"{\\"o\\":1}"}' : JSON.stringify({ manager: "argo cd", applies: true, patch, fields: [] }));
    if (address.endsWith("fieldManager=atoll-cli") && conflicts-- > 0) return answer('{"kind":"Status","reason":"Conflict"}', 409);
    return answer('{"stored":9007199254740995}');
  };
  const before = globalThis.fetch;
  globalThis.fetch = hub as typeof fetch;
  try {
    const kept = { object: "apps/Deployment/shop/web", resource: "deployments", revision: "12", operation: "Edited", at: "", by: "", until: "" };
    const undo = await readUndo(kept, new AbortController().signal);
    await applyChange(undo.change!);
    const at = "/apis/apps/v1/namespaces/shop/deployments/web";
    const question = "POST /atoll/v1alpha1/undo?group=apps&kind=Deployment&namespace=shop&name=web&revision=12";
    assert.deepEqual(sent, [
      `${question} {"present":${present}}`, `PATCH ${at}?fieldManager=argo%20cd&fieldValidation=Strict ${patch}`,
      `${question} {"present":${present},"live":{"stored":9007199254740995}}`, `PATCH ${at}?fieldManager=atoll-cli {"o":1}`,
      `${question} {"present":${present},"live":${present}}`, `PATCH ${at}?fieldManager=atoll-cli {"o":1}`,
    ]);
    sent.length = 0;
    await planChange(undo.change!, new AbortController().signal);
    assert.deepEqual(sent, [`PATCH ${at}?dryRun=All&fieldManager=atoll-plan&fieldValidation=Strict ${patch}`, 'POST /atoll/v1alpha1/plan {"objects":[{"stored":9007199254740995}]}']);
    conflicts = 5; // the write is done, and the owners cannot be written
    await assert.rejects(applyChange(undo.change!), (e) => describeError(e).startsWith("The edit is taken back, but"));
    for (const [object, operation] of [["/Secret/shop/a", "Edited"], ["/ServiceAccount/shop/a", "Edited"], ["/ConfigMap/shop/a", "Deleted"], ["/ConfigMap/shop/a", "Created"]]) assert.ok(!canUndo({ ...kept, object: object!, operation: operation! }));
    assert.ok(canUndo({ ...kept, object: "example.com/Secret/shop/a" }));
  } finally {
    globalThis.fetch = before;
  }
});

test("a rollout is offered what atoll rollout resume does for its reason", () => {
  const actionOf = (reason: string, rollout?: object) => {
    const b = { ...bundle, spec: { ...bundle.spec, rollout }, status: { waitsFor: "x", wait: { reason, actor: "the owner", since: "2026-11-29T12:00:00Z" }, rollout: { reason, message: "m", since: "2026-11-29T12:00:00Z" } } } as unknown as Bundle;
    return listWaits([], [appRow(b)], () => "the owner").map((w) => [w.action, w.reason, w.message].join(" "));
  };
  assert.deepEqual(actionOf("TooManyUnhealthy"), ["resume TooManyUnhealthy m"]);
  assert.deepEqual(actionOf("TooManyUnhealthy", { type: "Staged", maxUnavailable: "25%" }), ["look TooManyUnhealthy x"]);
  assert.deepEqual(actionOf("StageFailed", { type: "Staged" }), ["resume StageFailed m"]);
  assert.deepEqual(actionOf("GateFailed", { type: "Staged" }), ["resume GateFailed m"]);
  assert.deepEqual(actionOf("MaxUnavailableReached"), ["look MaxUnavailableReached x"]);
});

test("commands are safe to paste", () => {
  assert.equal(commandOf("atoll", "accept", "oslo-1"), "atoll accept oslo-1");
  assert.equal(commandOf("atoll", "undo", "roles.rbac.authorization.k8s.io/$(reboot)'x"), `atoll undo 'roles.rbac.authorization.k8s.io/$(reboot)'\\''x'`);
  assert.equal(commandOf("atoll", "a\nb"), undefined);
  assert.equal(commandOf("atoll", "a\u202eb"), undefined);
  assert.equal(bundleCommand(["confirm"], { namespace: "shop", name: "web" }, "--plan", "a1"), "atoll confirm bundle/web -n shop --plan a1");
  assert.equal(bundleCommand(["confirm"], { name: "web" }), "atoll confirm clusterbundle/web");
});

test("rights are asked for a namespace first, once, few at a time, and up to a bound", async () => {
  let now = 0;
  let running = 0;
  let most = 0;
  const asked: string[] = [];
  const checker = new RightChecker(async (r: Right) => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setImmediate(resolve));
    running--;
    asked.push(`${r.namespace}/${r.name ?? ""}`);
    return { allowed: r.namespace === "all" || r.name === "mine", why: "" };
  }, () => now);
  const right = (namespace: string, name: string): Right => ({ verb: "patch", group: "atoll.dev", resource: "bundles", namespace, name });
  assert.deepEqual([(await checker.check(right("all", "a"))).allowed, (await checker.check(right("all", "b"))).allowed], [true, true]);
  assert.deepEqual([(await checker.check(right("one", "mine"))).allowed, (await checker.check(right("one", "other"))).allowed], [true, false]);
  assert.deepEqual(asked, ["all/", "one/", "one/mine", "one/other"]);
  now = 61_000;
  await checker.check(right("all", "a"));
  assert.equal(asked.length, 5);
  const many = await Promise.all(Array.from({ length: 300 }, (_, i) => checker.check(right("one", "x" + i))));
  assert.ok(most <= 4, String(most));
  assert.ok(asked.length <= 5 + 200, String(asked.length));
  assert.ok(many[0]!.allowed === false && many[299]!.allowed === true, "beyond the bound the hub alone decides");
  const failing = new RightChecker(() => Promise.reject(new Error("gone")));
  assert.equal((await failing.check(right("one", "a"))).allowed, true);
});

test("a plan is told in full", () => {
  const plan: Plan = {
    changes: true, hidden: 2, refused: [{ object: "Deployment shop/web", why: "no" }],
    bundles: [{
      namespace: "shop", name: "web", source: "PropagationPolicy web", held: ["remove from oslo"], noFit: true, staysDrained: [{ cluster: "rome", reason: "NoReplacement", why: "no other" }],
      rows: [
        { clusters: ["oslo"], change: "Removed", why: "not selected" }, { clusters: ["bonn"], change: "Removed", orphaned: true },
        { clusters: Array.from({ length: 14 }, (_, i) => "c" + i), change: "Changed", replicas: { "apps/Deployment/shop/web": { before: 2, after: 3 } }, items: [{ key: "apps/Deployment/shop/web", change: "Changed", fields: [{ path: "/spec/replicas", before: 2, after: 3 }, { path: "/data/k", hidden: true, before: "s3cret" }] }] },
      ],
      rollout: { stages: [{ name: "eu", first: 1, later: 2, gates: ["ok"] }], waits: "the stage" },
    }],
  };
  const [whole, web] = planParts(plan);
  assert.deepEqual(whole!.lines.map((l) => l.text), ["Deployment shop/web: no", "2 applications that you may not see would change"]);
  assert.equal(web!.title, "shop/web (PropagationPolicy web)");
  assert.deepEqual(web!.lines.map((l) => l.sign + " " + l.text), [
    "! 1 removals would wait for a confirmation", "- is removed from 1 clusters: oslo — not selected", "- leaves 1 clusters, and its objects stay there: bonn",
    "~ changes in 14 clusters: c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11 2 more", "! no cluster would fit; what runs is kept", "! rome is drained and keeps its copy: no other", "~ in stages — the stage",
  ]);
  assert.deepEqual(web!.lines[3]!.details, ["~ Deployment web: replicas 2 → 3", "~ Deployment web: /spec/replicas: 2 → 3", "~ Deployment web: /data/k: ••• → •••"]);
  assert.deepEqual(web!.lines[6]!.details, ["eu: 1 at first, 2 later · ok"]);
  assert.ok(!JSON.stringify(planParts(plan)).includes("s3cret"));
  assert.deepEqual(planParts({ changes: false, bundles: [] }), []);
  assert.equal(joinNames(["a", "b"]), "a, b");
});

test("a plan tells of an item all that the command tells", () => {
  const key = "apps/Deployment/shop/web";
  const cases: [Partial<ItemChange>, string[]][] = [
    [{ observe: "Approve" }, ["! Deployment web: would not be written before a person approves the differences that are reported"]],
    [{ observe: "Drift" }, ["! Deployment web: would not be written, and differences would be reported"]],
    [{ observe: "Health" }, ["! Deployment web: would not be written, and its health would be reported"]],
    [{ written: true }, ["! Deployment web: would be written from now on"]],
    [{ conflictAfter: "Overwrite" }, ["~ Deployment web: objects that are not Atoll's: as the policy says → Overwrite"]],
    [{ serviceAccountBefore: "a/b" }, ["~ Deployment web: needs rights of ServiceAccount: a/b → the agent's alone"]],
    [{ change: "Added", serviceAccountAfter: "a/b" }, ["~ Deployment web: needs rights of ServiceAccount: a/b"]],
    [{ reassessed: true }, ["~ Deployment web: assessed by other rules of feedback, health or completion"]],
    [{ error: "bad" }, ["! Deployment web: could not be rendered, and stays as it is there: bad"]],
    [{ change: "Added", error: "bad" }, ["! Deployment web: could not be rendered, and would not be sent: bad"]],
    [{ released: ["/a"], corrected: ["/b"] }, ["~ Deployment web: /a is left to the cluster", "~ Deployment web: /b no longer belongs to the cluster"]],
    [{ change: "Removed" }, ["- Deployment web"]],
  ];
  const partOf = (row: object, more: object = {}) => planParts({ changes: true, bundles: [{ name: "web", source: "x", rows: [{ clusters: ["oslo"], change: "Changed", ...row } as RowGroup], ...more }] })[0]!;
  for (const [item, want] of cases) assert.deepEqual(partOf({ items: [{ key, change: "Changed", ...item }] }).lines[0]!.details, want);
  assert.deepEqual(partOf({ replicas: { [key]: { before: 3 } } }).lines[0]!.details, ["~ Deployment web: would be divided no more"]);
  assert.deepEqual(partOf({ change: "Removed", replicas: { [key]: { before: 3 } } }).lines[0]!.details, ["~ Deployment web: replicas 3 → 0"]);
  const full = { reason: "NoCapacity", why: "full" };
  const part = partOf({}, { waits: "the policy is paused", full: [{ cluster: "a", ...full }, { cluster: "b", stays: true, ...full }], rollout: { stages: [{ name: "eu", first: 1, later: 2, disconnected: 3 }] } });
  assert.deepEqual(part.lines.slice(1).map((l) => l.text), ["nothing would be sent: the policy is paused", "a would be left out: full", "b would stay as it is: full", "in stages"]);
  assert.deepEqual(part.lines[4]!.details, ["eu: 1 at first, 2 later, 3 after they return"]);
});

test("a plan of a large fleet is bounded, and its removals come first", () => {
  const rows = Array.from({ length: 10_000 }, (_, i): RowGroup => ({ clusters: ["c" + i], change: i === 9999 ? "Removed" : "Changed" }));
  const lines = planParts({ changes: true, bundles: [{ name: "web", source: "x", rows, noFit: true }] })[0]!.lines;
  assert.deepEqual([lines.length, lines[0]!.text, lines[200]!.text, lines[201]!.text], [202, "is removed from 1 clusters: c9999", "9800 more are not listed here; atoll plan lists all", "no cluster would fit; what runs is kept"]);
  const parts = planParts({ changes: true, bundles: Array.from({ length: 150 }, (_, i) => ({ name: "b" + i, source: "x" })) });
  assert.deepEqual([parts.length, parts[0]!.lines[0]!.text], [101, "50 more are not listed here; atoll plan lists all"]);
});

test("a write without an answer is not said to be tried again", () => {
  assert.equal(describeError(new RequestError(0, "Unreachable", "")), en["act.unreachable"]);
  assert.equal(describeError(new RequestError(409, "Conflict", "x")), en["act.conflict"]);
  assert.equal(describeError(new RequestError(403, "Forbidden", "no\u202e")), "no\\u202e");
});

test("a write names the session that the page shows", async (t) => {
  const sent: [string, string | null][] = [];
  t.mock.method(globalThis, "fetch", (path: string, init: RequestInit) => {
    sent.push([`${init.method ?? "GET"} ${path}`, (init.headers as Headers).get("X-Atoll-Session")]);
    return Promise.resolve(new Response(JSON.stringify({ user: "aiko", until: "", session: sent.length < 3 ? "2026-11-30T00:00:00Z" : "2026-11-30T00:05:00Z" })));
  });
  actAs(await getPerson());
  await sendWrite({ method: "PATCH", path: "/a", body: "{}" });
  await signIn("token");
  await sendWrite({ method: "POST", path: "/b", body: "{}" });
  assert.deepEqual(sent, [
    ["GET /console/session", null], ["PATCH /console/api/a", "2026-11-30T00:00:00Z"], ["POST /console/session", "2026-11-30T00:00:00Z"], ["POST /console/api/b", "2026-11-30T00:05:00Z"],
  ]);
});

test("differences that are not shown are counted", () => {
  const field = (path: string) => ({ path });
  const drift = { kind: "ConfigMap", name: "a", cluster: "oslo", bundle: "shop/web" };
  assert.equal(countHidden({ ...drift, differentFields: 20, fields: [..."abcdefghijkl"].map(field) }, 8), 12);
  assert.equal(countHidden({ ...drift, differentFields: 2, fields: [..."ab"].map(field) }, 8), 0);
  assert.equal(countHidden({ ...drift, differentFields: 3 }, 8), 3);
});

test("an edited object stays chosen as others come and go", () => {
  const [a, b, grouped] = [{ kind: "ConfigMap", namespace: "shop", name: "a" }, { kind: "ConfigMap", namespace: "shop", name: "b" }, { group: "x.dev", kind: "ConfigMap", namespace: "shop", name: "b" }];
  assert.equal(findTemplate([a, grouped, b], keyOfTemplate(b)), b);
  assert.deepEqual([findTemplate([a, b], undefined), findTemplate([a], keyOfTemplate(b)), findTemplate([], "x")], [a, a, undefined]);
});

test("what a person reads before a change is in both languages", () => {
  for (const key of Object.keys(en).filter((k) => /^(act|drift|plan|change|drain|pause|history|undo|logs|pod)\./.test(k)) as (keyof typeof en)[]) {
    const parameters = (text: string) => [...text.matchAll(/\{\w+\}/g)].map((m) => m[0]).sort();
    assert.ok(zh[key], key);
    assert.deepEqual(parameters(zh[key]!), parameters(en[key]), key);
  }
});
