// Tests of the pure parts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff } from "../src/api/backoff";
import { fieldSelector } from "../src/model/selector";
import { applyLine, type Tree, type TreeCluster } from "../src/api/tree";
import type { Bundle, Cluster, HubSettings } from "../src/api/types.gen";
import { appStatus } from "../src/model/application";
import { clusterRow } from "../src/model/cluster";
import { describeOverride, placementRows, withoutSecretValues } from "../src/model/explanation";
import { waitingCluster } from "../src/model/fleet";
import { activeFreeze } from "../src/model/freeze";
import { type Searchable, matchesFilter, parseFilter } from "../src/model/filter";
import { readPasted } from "../src/model/kubeconfig";
import { ownedObjects, podState } from "../src/model/owners";
import { formatBytes, formatCores, parseQuantity } from "../src/model/quantity";
import { itemState, treeRows } from "../src/model/rows";
import { formatAge } from "../src/model/time";
import { listWaits } from "../src/model/waits";
import { en } from "../src/text/en";
import { safeBlock, safeLink, safeText } from "../src/text/safe";
import { setLanguage, t } from "../src/text/text";
import { zh } from "../src/text/zh";

const time = "2026-11-29T12:00:00Z";

function condition(type: string, status: "True" | "False" | "Unknown", reason: string) {
  return { type, status, reason, message: reason + " message", lastTransitionTime: time };
}

function cluster(name: string, accepted: boolean, ...conditions: ReturnType<typeof condition>[]): Cluster {
  return { metadata: { name, labels: { env: "prod" } }, spec: { accepted, region: "eu", taints: [{ key: "a", effect: "NoSchedule" }] }, status: { conditions } };
}

test("quantities are numbers", () => {
  for (const [q, want] of [["500m", 0.5], ["3", 3], ["12Gi", 12 * 2 ** 30], ["1e3", 1000], ["2k", 2000], ["", undefined], ["x", undefined], ["1Q", undefined]] as const) {
    assert.equal(parseQuantity(q), want, q);
  }
  assert.equal(formatCores(0.25), "250m");
  assert.equal(formatCores(48), "48");
  assert.equal(formatBytes(1.5 * 2 ** 30), "1.5 Gi");
});

test("ages have their largest unit", () => {
  const now = Date.parse(time);
  for (const [seconds, want] of [[-5, "0s"], [59, "59s"], [60, "1m"], [7200, "2h"], [172800, "2d"]] as const) {
    assert.equal(formatAge(new Date(now - seconds * 1000).toISOString(), now), want);
  }
  assert.equal(formatAge("no time", now), "");
  assert.equal(formatAge(undefined, now), "");
});

test("filters find words and fields", () => {
  const row: Searchable = { words: ["Oslo-1", "eu", "AgentConnected", "env=prod"], fields: { name: ["Oslo-1"], status: ["Ready"], region: ["eu"], label: ["env=prod"] } };
  const matches = (text: string) => matchesFilter(parseFilter(text), row);
  for (const text of ["", "oslo", "OSLO agent", "status:ready", "status:away,ready", "label:env", "label:env=prod", "region:e*", "-rome", "-status:away", 'name:"oslo-1"']) assert.ok(matches(text), text);
  for (const text of ["rome", "status:away", "label:en", "-oslo", "nofield:x", "region:us", "oslo rome"]) assert.ok(!matches(text), text);
  assert.equal(parseFilter("a ".repeat(100)).length, 20);
});

test("clusters have one status", () => {
  const status = (c: Cluster) => clusterRow(c).status;
  assert.equal(status(cluster("a", true, condition("Ready", "True", "AgentConnected"))), "Ready");
  assert.equal(status(cluster("a", true, condition("Ready", "False", "MemberNotReady"))), "NotReady");
  assert.equal(status(cluster("a", true, condition("Ready", "Unknown", "StreamLost"))), "Away");
  assert.equal(status(cluster("a", true, condition("Ready", "Unknown", "NotDetermined"))), "Unknown");
  assert.equal(status(cluster("a", false, condition("Accepted", "False", "WaitsForAdministrator"))), "Joining");
  assert.equal(status({ ...cluster("a", true), spec: { accepted: true, removal: { mode: "Orphan" } } }), "Removing");
  assert.equal(status({ metadata: { name: "new" }, spec: {} }), "Joining");
});

test("applications have one status", () => {
  const bundle = (status: Bundle["status"]): Bundle => ({ metadata: { name: "web", namespace: "shop" }, spec: { source: { kind: "Annotation", name: "web" } } as Bundle["spec"], status });
  assert.equal(appStatus(bundle(undefined)), "Unknown");
  assert.equal(appStatus(bundle({ conditions: [condition("Ready", "True", "Ready")] })), "Ready");
  assert.equal(appStatus(bundle({ conditions: [condition("Ready", "False", "Degraded")] })), "Degraded");
  assert.equal(appStatus(bundle({ conditions: [condition("Applied", "False", "Failed"), condition("Ready", "False", "Degraded")] })), "Failed");
  assert.equal(appStatus(bundle({ wait: { actor: "the application's owner", reason: "NoClusterFits", since: time } })), "Waiting");
  assert.equal(appStatus(bundle({ wait: { actor: "the agent", reason: "WaitsForApply", since: time } })), "Progressing");
  assert.equal(appStatus(bundle({ conditions: [condition("Scheduled", "True", "Nowhere")] })), "Nowhere");
});

test("only what people must end is a wait", () => {
  const clusters = [cluster("new", false, condition("Accepted", "False", "WaitsForAdministrator")), cluster("well", true, condition("Ready", "True", "AgentConnected"))].map(clusterRow);
  const waits = listWaits(clusters, [], (reason) => (reason === "WaitsForAdministrator" ? "the hub's administrator" : "none"));
  assert.deepEqual(waits.map((w) => [w.name, w.actor, w.reason]), [["new", "the hub's administrator", "WaitsForAdministrator"]]);
});

test("a drain and a removal that are under way are waits of their own", () => {
  const drained = { ...cluster("a", true, condition("Ready", "True", "AgentConnected"), condition("Draining", "True", "NoReplacement")) };
  const removed = { ...cluster("b", true, condition("Ready", "True", "AgentConnected"), condition("Removing", "True", "WaitsForConfirmation")), spec: { accepted: true, removal: { mode: "Clean" as const } } };
  const slim = { name: "c", state: "NotReady" as const, reason: "MemberNotReady", since: time, processes: [{ type: "Draining", reason: "MemberNotReady", since: time }] };
  const waits = listWaits([clusterRow(drained), clusterRow(removed), waitingCluster(slim)], [], () => "the hub's administrator");
  assert.deepEqual(waits.map((w) => [w.name, w.reason, !!w.cluster]), [["a", "NoReplacement", true], ["b", "WaitsForConfirmation", true], ["c", "MemberNotReady", false]]);
});

test("a freeze holds until it ends or is lifted", () => {
  const settings = (until?: string): HubSettings => ({ metadata: { name: "hub" } as HubSettings["metadata"], spec: { freeze: { reason: "outage", since: time, until } } });
  const at = Date.parse(time);
  assert.equal(activeFreeze(undefined, at), undefined);
  assert.equal(activeFreeze({ ...settings(), spec: {} }, at), undefined);
  assert.equal(activeFreeze(settings(), at)?.reason, "outage");
  assert.equal(activeFreeze(settings("2026-11-29T12:00:01Z"), at)?.reason, "outage");
  assert.equal(activeFreeze(settings(time), at), undefined);
});

test("a pasted kubeconfig gives its token", () => {
  assert.deepEqual(readPasted(" Bearer abc.def \n"), { token: "abc.def" });
  const yaml = `apiVersion: v1
clusters:
- cluster:
    server: https://hub
  name: hub
contexts:
- context:
    cluster: hub
    namespace: shop
    user: team
  name: team
- context: {cluster: hub, user: other}
  name: other
current-context: team
kind: Config
users:
- name: other
  user:
    token: wrong
- name: team
  user:
    token: "right"
`;
  assert.deepEqual(readPasted(yaml), { token: "right", namespace: "shop" });
  assert.deepEqual(readPasted(JSON.stringify({ apiVersion: "v1", "current-context": "a", contexts: [{ name: "a", context: { user: "u" } }], users: [{ name: "u", user: { token: "x" } }] })).token, "x");
  assert.equal(readPasted(yaml.replace('token: "right"', "client-certificate-data: AAAA")).problem, "signin.kubeconfig.certificate");
  assert.equal(readPasted(yaml.replace('token: "right"', "exec:\n      command: kubelogin")).problem, "signin.kubeconfig.command");
  assert.equal(readPasted(yaml.replace('token: "right"', "{}")).problem, "signin.kubeconfig.none");
  assert.equal(readPasted("{ apiVersion: broken").problem, "signin.kubeconfig.none");
});

test("text that hides or reorders is shown as escapes", () => {
  assert.equal(safeText("a\u202Eb\u0007c\u2028\u200B\u{E0001}"), "a\\u202eb\\u0007c\\u2028\\u200b\\ue0001");
  assert.equal(safeText("<b>é漢字</b>"), "<b>é漢字</b>");
  assert.equal(safeText(undefined), "");
  assert.equal(safeText("x".repeat(5000)).length, 4001);
});

test("links are http or https", () => {
  assert.equal(safeLink("https://a.example/x"), "https://a.example/x");
  for (const bad of ["javascript:alert(1)", "data:text/html,x", "//a.example", "file:///etc/passwd", "x"]) assert.equal(safeLink(bad), undefined, bad);
});

test("field selectors are escaped", () => {
  assert.equal(decodeURIComponent(fieldSelector({ "metadata.name": "a=b,c\\d" })), "fieldSelector=metadata.name=a\\=b\\,c\\\\d");
});

test("pauses grow, and stay below half a minute", () => {
  const b = new Backoff(() => 0.5);
  assert.equal(b.next(), 375);
  assert.equal(b.next(), 750);
  for (let i = 0; i < 50; i++) assert.ok(b.next() <= 30_000);
  assert.equal(b.next(60), 60_000);
  b.reset();
  assert.equal(b.next(), 375);
});

const treeCluster = (name: string, more: Partial<TreeCluster> = {}): TreeCluster => ({ name, state: "Ready", phase: "Active", revision: 1, applied: true, total: 1, ready: 1, ...more });
const tree = (...clusters: TreeCluster[]): Tree => ({ name: "web", namespace: "shop", revision: 1, templates: [{ kind: "Deployment", name: "web", group: "apps" }, { kind: "Service", name: "web" }], counts: {}, clusters });

test("a changed line keeps the other clusters", () => {
  const before = applyLine(undefined, { type: "TREE", tree: tree(treeCluster("a"), treeCluster("b"), treeCluster("c")) });
  const after = applyLine(before, { type: "CHANGED", tree: { ...tree(treeCluster("b", { state: "Failed" })), revision: 2 }, gone: ["c"] });
  assert.deepEqual(after?.clusters.map((c) => c.name + c.state), ["bFailed", "aReady"]);
  assert.equal(after?.revision, 2);
  assert.equal(applyLine(after, { type: "ERROR" }), after);
});

test("a template in a cluster has the state of the report", () => {
  assert.equal(itemState(treeCluster("a"), 0).state, "Healthy");
  assert.equal(itemState(treeCluster("a", { items: [{ template: 0, health: "Degraded" }] }), 0).state, "Degraded");
  assert.equal(itemState(treeCluster("a", { items: [{ template: 0, error: true }] }), 0).state, "Failed");
  assert.equal(itemState(treeCluster("a", { items: [{ template: 0, absent: true }] }), 0).state, "Nowhere");
  assert.equal(itemState(treeCluster("a", { state: "Away" }), 0).state, "Away");
  assert.equal(itemState(treeCluster("a", { state: "Progressing", applied: false }), 0).state, "Progressing");
  assert.equal(itemState(treeCluster("a", { state: "Degraded", unlisted: 3 }), 0).state, "Progressing");
});

test("many clusters of one state are one row", () => {
  const clusters = [...Array(50).keys()].map((i) => treeCluster("c" + i));
  clusters.push(treeCluster("bad", { state: "Degraded", items: [{ template: 0, health: "Degraded", reason: "CrashLoopBackOff" }] }));
  const rows = treeRows(tree(...clusters), "template", new Set(), () => undefined);
  assert.deepEqual(rows.slice(0, 3).map((r) => [r.icon, r.name || r.detail, r.state]), [["template", "web", "Degraded"], ["cluster", "bad", "Degraded"], ["group", "50", "Healthy"]]);
  assert.equal(treeRows(tree(...clusters), "template", new Set(["t0/gHealthy"]), () => undefined).filter((r) => r.icon === "cluster").length > 50, true);
});

test("objects are below the template that controls them", () => {
  const meta = (name: string, owner?: [string, string]) => ({
    name: name + ".m1", labels: { "atoll.dev/cluster": "m1" }, ownerReferences: owner && [{ apiVersion: "x", kind: owner[0], name: owner[1], uid: "u", controller: true }],
  });
  const rs = { kind: "ReplicaSet", metadata: meta("web-1", ["Deployment", "web"]), spec: { replicas: 1 }, status: { readyReplicas: 1 } };
  const old = { kind: "ReplicaSet", metadata: meta("web-0", ["Deployment", "web"]), spec: { replicas: 0 } };
  const pod = { metadata: meta("web-1-x", ["ReplicaSet", "web-1.m1"]), spec: { containers: [{ name: "a" }] }, status: { phase: "Running", containerStatuses: [{ name: "a", ready: true, restartCount: 2 }] } };
  const found = ownedObjects({ kind: "Deployment", name: "web" }, [rs, old], [pod]);
  assert.deepEqual(found.map((o) => [o.kind, o.shortName, o.state, o.children.map((c) => [c.kind, c.shortName, c.state, c.detail])]), [["ReplicaSet", "web-1", "Healthy", [["Pod", "web-1-x", "Running", "1/1 · ↻ 2"]]]]);
  assert.equal(podState({ metadata: { name: "x" }, status: { phase: "Pending", containerStatuses: [{ name: "a", ready: false, restartCount: 0, state: { waiting: { reason: "ImagePullBackOff" } } }] } }).state, "ImagePullBackOff");
});

test("each text of the Chinese catalogue has the parameters of the English one", () => {
  const parameters = (s: string) => [...s.matchAll(/\{\w+\}/g)].map((m) => m[0]).sort();
  for (const [key, text] of Object.entries(zh)) assert.deepEqual(parameters(text), parameters(en[key as keyof typeof en]), key);
  setLanguage("zh");
  assert.equal(t("fleet.col.version"), en["fleet.col.version"]);
  assert.equal(t("more", { n: 3 }), "另有 3 项");
  setLanguage("en");
});

test("an explanation lists what is unfinished first", () => {
  const rows = placementRows([
    { cluster: "z-out", verdict: "Out", filter: "taints", reason: "taint a:NoSchedule is not tolerated" },
    { cluster: "b", verdict: "Placed", score: { total: 900 }, row: { phase: "Active", online: true, number: 3, assigned: { "apps/Deployment/web": 2, "apps/Deployment/db": 1 } }, overrides: [{ policy: "op", rule: 0, path: "/spec/replicas", value: 5 }, { policy: "op", rule: 1, path: "/a" }, { policy: "skip", rule: 0, skipped: "no such path" }] },
    { cluster: "a", verdict: "Placed", row: { phase: "Active", online: false, waitsFor: "the cluster to come back", waitsReason: "WaitsForCluster" } },
    { cluster: "old", verdict: "Leaves", reasonCode: "PlacementEdited", reason: "not selected any more" },
  ]);
  assert.deepEqual(rows.map((r) => r.cluster), ["old", "a", "b", "z-out"]);
  assert.deepEqual([rows[2]!.score, rows[2]!.replicas, rows[2]!.revision, rows[2]!.overrides], [900, 3, 3, 1]);
  assert.deepEqual([rows[3]!.reason, rows[0]!.reason, rows[1]!.waitsFor], ["taints", "PlacementEdited", "the cluster to come back"]);
  assert.equal(describeOverride({ policy: "op", rule: 0, overrider: "plaintext[0]", path: "/data/k", hidden: true, value: "x" }), "/data/k = ••• (op #0 plaintext[0])");
  assert.equal(describeOverride({ policy: "op", rule: 2, path: "/a", value: null }), "/a = ∅ (op #2)");
  assert.equal(describeOverride({ policy: "op", rule: 0, skipped: "no such path" }), "op #0: no such path");
});

test("values of Secrets are hidden", () => {
  const secret = { kind: "Secret", data: { token: "c2VjcmV0" }, stringData: { a: "b" }, type: "Opaque" };
  assert.deepEqual(withoutSecretValues(secret), { kind: "Secret", data: { token: "•••" }, stringData: { a: "•••" }, type: "Opaque" });
  assert.deepEqual(withoutSecretValues({ kind: "ConfigMap", data: { a: "b" } }), { kind: "ConfigMap", data: { a: "b" } });
});

test("a block keeps its lines and nothing else that is unsafe", () => {
  assert.equal(safeBlock("a: 1\nb: \u202e\r\u0007x\n"), "a: 1\nb: \\u202e\\u000d\\u0007x\n");
});
