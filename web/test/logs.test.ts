// Tests of logs: bounded and harmless lines, their order, what is kept, which sources there are, and how they are followed.

import assert from "node:assert/strict";
import { test } from "node:test";
import { RequestError, readText } from "../src/api/client";
import type { Pod } from "../src/api/kubernetes";
import { LogFollower, type ReadText, findWorkloads } from "../src/api/logs";
import { LogBuffer, findLines, splitMatches } from "../src/model/logbuffer";
import { LineSplitter, maxLine, parseLine } from "../src/model/logline";
import { type LogSource, containerNames, hasLogs, logCommands, logPath, podQuery, podSelector, sourceName, sourcesOf, workloadPath, maxButtons, sourcesWithButton } from "../src/model/logsources";
import { treeRows } from "../src/model/rows";
import type { Tree } from "../src/api/tree";

const line = (text: string) => parseLine({ text, cut: 0 });

test("a stream is split into lines, however it is cut into chunks", () => {
  const text = "one\n\ntwo\r\nthree";
  for (let size = 1; size <= text.length; size++) {
    const s = new LineSplitter();
    const out: string[] = [];
    for (let i = 0; i < text.length; i += size) out.push(...s.add(text.slice(i, i + size)).map((l) => l.text));
    out.push(s.end()?.text ?? "-");
    assert.deepEqual(out, ["one", "", "two\r", "three"]);
    assert.equal(s.end(), undefined);
  }
});

test("a line of ten million characters is cut while it arrives", () => {
  const s = new LineSplitter();
  const chunk = "x".repeat(100_000);
  for (let i = 0; i < 100; i++) assert.deepEqual(s.add(chunk), []);
  const [whole, next] = s.add("\nnext\n");
  assert.deepEqual([whole!.text.length, whole!.cut, next!.text, next!.cut], [maxLine, 10_000_000 - maxLine, "next", 0]);
  assert.ok(parseLine(whole!).text.endsWith(` … (+${10_000_000 - maxLine})`));
});

test("lines have their time and a text that does no harm", () => {
  const parsed = line("2026-11-29T12:00:00.123456789Z GET /");
  assert.deepEqual([parsed.stamp, parsed.text], ["2026-11-29T12:00:00.123456789Z", "GET /"]);
  assert.ok(Math.abs(parsed.at! - (Date.parse("2026-11-29T12:00:00Z") + 123.456789)) < 0.001);
  assert.equal(line("2026-11-29T14:00:00+02:00 x").at, Date.parse("2026-11-29T12:00:00Z"));
  assert.deepEqual(line("2026-11-29T12:00:00Z"), { at: Date.parse("2026-11-29T12:00:00Z"), stamp: "2026-11-29T12:00:00Z", text: "" });
  for (const text of ["no time", "2026-99-29T12:00:00Z x", "2026-11-29 x", ""]) assert.deepEqual(line(text), { stamp: "", text });
  assert.equal(line("\u001b[31mred\u001b[0m \u001b[38;5;196mdeep\u001b[m").text, "red deep");
  assert.equal(line("\u001b]0;title\u0007\u001b[2J\u202egnp\u2028a\u0000\u0085\ue000").text, "\\u001b]0;title\\u0007\\u001b[2J\\u202egnp\\u2028a\\u0000\\u0085\\ue000");
  assert.equal(line("\ta\tb\r").text, "\ta\tb");
  assert.equal(line("<img src=x onerror=alert(1)>").text, "<img src=x onerror=alert(1)>");
  const escaped = line("\u0000".repeat(maxLine));
  assert.ok(escaped.text.length < maxLine + 30 && escaped.text.includes(" … (+"));
});

const at = (seconds: number, text: string) => ({ at: seconds, stamp: String(seconds), text });
const texts = (b: { lines: readonly { text: string }[] }) => b.lines.map((l) => l.text).join(" ");

test("lines of several logs are in the order of their times, those of one log stay in theirs", () => {
  const b = new LogBuffer();
  for (const [source, time, text] of [[0, 1, "a1"], [0, 4, "a4"], [1, 2, "b2"], [1, 3, "b3"]] as const) b.add(source, at(time, text));
  assert.ok(b.merge());
  assert.equal(texts(b), "a1 b2 b3 a4");
  const held = b.lines;
  b.add(0, at(3, "a3late")); // the clock of its node went back: it stays behind a4
  b.add(1, { stamp: "", text: "b-without-time" });
  b.add(2, at(2.5, "c2"));
  b.merge();
  assert.equal(texts(b), "a1 b2 c2 b3 b-without-time a4 a3late");
  assert.equal(held.map((l) => l.text).join(" "), "a1 b2 b3 a4");
  assert.ok(!b.merge());
});

test("the order is that of a stable sort, whatever comes when", () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % n;
  for (let round = 0; round < 50; round++) {
    const b = new LogBuffer({ lines: 10_000, characters: 1e9 });
    const all: { at: number; id: number }[] = [];
    const last = [0, 0, 0];
    for (let i = 0; i < 200; i++) {
      const source = random(3);
      last[source] = Math.max(last[source]!, random(50));
      all.push({ at: last[source]!, id: i });
      b.add(source, at(last[source]!, String(i)));
      if (random(4) === 0) b.merge();
    }
    b.merge();
    assert.equal(texts(b), all.sort((x, y) => x.at - y.at || x.id - y.id).map((l) => String(l.id)).join(" "));
  }
});

test("no more lines and characters are kept than stated, and the newest of them", () => {
  const b = new LogBuffer({ lines: 100, characters: 1000 });
  for (let i = 0; i < 1000; i++) b.add(i % 3, at(i, "x" + i));
  b.merge();
  assert.deepEqual([b.lines.length, b.dropped, b.lines[0]!.text, b.lines.at(-1)!.text], [100, 900, "x900", "x999"]);
  b.add(0, at(2000, "y".repeat(990)));
  b.merge();
  assert.deepEqual([b.lines.length, b.lines[0]!.text, b.dropped], [3, "x998", 998]);
  b.add(0, at(2001, "z".repeat(1001)));
  b.merge();
  assert.equal(b.lines.length, 0);
  const flood = new LogBuffer({ lines: 10, characters: 100 });
  for (let i = 0; i < 1000; i++) flood.add(0, at(i, "flood")); // without a merge by the clock
  assert.ok(flood.lines.length <= 10);
});

test("lines are found by text and source", () => {
  const b = new LogBuffer();
  for (const [source, text] of [[0, "GET /Cart"], [1, "POST /cart"], [1, "GET /"]] as const) b.add(source, at(1, text));
  b.merge();
  assert.equal(texts({ lines: findLines(b.lines, "CART", new Set()) }), "GET /Cart POST /cart");
  assert.equal(texts({ lines: findLines(b.lines, "cart", new Set([0])) }), "POST /cart");
  assert.equal(findLines(b.lines, "", new Set()), b.lines);
  assert.deepEqual(splitMatches("aXbxc", "x"), ["a", "X", "b", "x", "c"]);
  assert.deepEqual(splitMatches("abc", ""), ["abc"]);
  assert.deepEqual(splitMatches("İx", "x"), ["İx"]); // its lower case is longer
  assert.equal(splitMatches("x".repeat(5000), "x").join(""), "x".repeat(5000));
});

const status = (name: string, state: object, containerID = "c1") => ({ name, ready: true, restartCount: 0, containerID, state });
const running = { running: {} };

function pod(name: string, cluster: string, more: Partial<Pod["status"]> = {}, spec: Pod["spec"] = { containers: [{ name: "main" }, { name: "side" }] }): Pod {
  return { metadata: { name: `${name}.${cluster}`, namespace: "shop", uid: `${cluster}-${name}`, labels: { "atoll.dev/cluster": cluster } }, spec, status: { containerStatuses: [status("main", running), status("side", running)], ...more } };
}

test("sources are the chosen containers, by cluster and pod", () => {
  const pods = [pod("web-2", "rome"), pod("web-1", "oslo"), pod("web-0", "rome")];
  const names = (chosen: string, of = pods) => sourcesOf(of, chosen).map((s) => sourceName(s));
  assert.deepEqual(names(""), ["oslo/web-1 main", "rome/web-0 main", "rome/web-2 main"]);
  assert.deepEqual(names("side", [pods[0]!]), ["rome/web-2 side"]);
  assert.deepEqual(names("none", pods), []);
  assert.deepEqual(names("*", [pods[0]!]), ["rome/web-2 main", "rome/web-2 side"]);
  const stated = { ...pods[0]!, metadata: { ...pods[0]!.metadata, annotations: { "kubectl.kubernetes.io/default-container": "side" } } };
  assert.deepEqual(names("", [stated]), ["rome/web-2 side"]);
  const full = pod("a", "oslo", { initContainerStatuses: [status("init", { terminated: {} })], containerStatuses: [status("main", { waiting: {} })] }, { initContainers: [{ name: "init" }], containers: [{ name: "main" }], ephemeralContainers: [{ name: "debug" }] });
  assert.deepEqual(containerNames([full, pods[0]!]), ["init", "main", "debug", "side"]);
  assert.deepEqual(sourcesOf([full], "*").map((s) => [s.container, s.started, s.running]), [["debug", false, false], ["init", true, false], ["main", false, false]]);
});

test("requests and commands are those of kubectl and atoll", () => {
  const [s] = sourcesOf([pod("web-1", "oslo")], "");
  assert.equal(logPath(s!, { tail: 100, since: 0 }), "/api/v1/namespaces/shop/pods/web-1.oslo/log?container=main&timestamps=true&follow=true&tailLines=100");
  assert.ok(logPath(s!, { tail: 5, since: 300 }).endsWith("&tailLines=5&sinceSeconds=300"));
  assert.ok(logPath(s!, { tail: 5, since: 300 }, Date.parse("2026-11-29T12:00:00.9Z")).endsWith("follow=true&sinceTime=2026-11-29T12%3A00%3A00Z"));
  const web = { kind: "Deployment", namespace: "shop", name: "web", selector: "app=web" };
  assert.deepEqual(logCommands(web, "", "", { tail: 100, since: 0 }), [
    "kubectl logs -f -n shop -l app=web --prefix --max-log-requests 50 --timestamps --tail 100", "atoll logs -f deployment/web -n shop --tail 100",
  ]);
  assert.deepEqual(logCommands(web, "*", "oslo", { tail: 5, since: 300 }), [
    "kubectl logs -f -n shop -l app=web,atoll.dev/cluster=oslo --prefix --max-log-requests 50 --timestamps --all-containers --tail 5 --since 300s",
    "atoll logs -f deployment/web --clusters oslo -n shop --all-containers --tail 5 --since 300s",
  ]);
  assert.deepEqual(logCommands({ kind: "Pod", namespace: "shop", name: "web-1.oslo" }, "main", "", { tail: 5, since: 0 }), [
    "kubectl logs -f -n shop web-1.oslo --timestamps -c main --tail 5", "atoll logs -f web-1.oslo -n shop -c main --tail 5",
  ]);
  assert.equal(decodeURIComponent(podQuery(web, "oslo")), "labelSelector=app=web,atoll.dev/cluster=oslo");
  assert.equal(decodeURIComponent(podQuery({ kind: "Pod", namespace: "shop", name: "a.oslo" }, "")), "fieldSelector=metadata.name=a.oslo");
});

test("workloads select their pods", () => {
  const of = (kind: string, selector?: object) => podSelector({ metadata: { name: "w" }, spec: { selector } } as Parameters<typeof podSelector>[0], kind);
  assert.equal(of("Deployment", { matchLabels: { app: "web", tier: "a" } }), "app=web,tier=a");
  assert.equal(of("Deployment", { matchExpressions: [{ key: "app", operator: "In", values: ["a", "b"] }, { key: "x", operator: "Exists" }, { key: "y", operator: "DoesNotExist" }, { key: "z", operator: "NotIn", values: ["c"] }] }), "app in (a,b),x,!y,z notin (c)");
  assert.equal(of("Job"), "batch.kubernetes.io/job-name=w");
  assert.equal(of("Deployment", { matchExpressions: [{ key: "a", operator: "Nearly" }] }), undefined);
  assert.equal(of("Deployment", {}), undefined);
  assert.equal(workloadPath("StatefulSet", "shop", "a/b"), "/apis/apps/v1/namespaces/shop/statefulsets/a%2Fb");
  assert.deepEqual(["Pod", "constructor", "ConfigMap"].map((k) => workloadPath(k, "shop", "a")), [undefined, undefined, undefined]);
  assert.deepEqual([hasLogs("Deployment", "apps"), hasLogs("Deployment", "example.com"), hasLogs("Pod", ""), hasLogs("Pod", "x"), hasLogs("Job", "batch"), hasLogs("toString"), hasLogs("Service", "")], [true, false, true, false, true, false, false]);
});

test("the tree leads to the logs of workloads and pods", () => {
  const tree: Tree = { namespace: "shop", name: "b", revision: 1, templates: [{ group: "apps", kind: "Deployment", name: "web" }, { kind: "ConfigMap", name: "c" }, { kind: "Pod", name: "p" }], counts: {}, clusters: [{ name: "oslo", state: "Ready", phase: "Active", revision: 1, total: 1, ready: 1, applied: true }] };
  const owned = [{ kind: "ReplicaSet", name: "web-1.oslo", shortName: "web-1", state: "", detail: "", children: [{ kind: "Pod", name: "web-1-x.oslo", shortName: "web-1-x", state: "", detail: "", children: [] }] }];
  const rows = treeRows(tree, "template", new Set(["t0/coslo"]), () => owned);
  assert.deepEqual(rows.filter((r) => r.logs).map((r) => r.logs), [{ kind: "Deployment", namespace: "shop", name: "web" }, { kind: "Pod", namespace: "shop", name: "web-1-x.oslo" }]);
  assert.ok(treeRows({ ...tree, namespace: undefined }, "template", new Set(), () => owned).every((r) => !r.logs));
});

const source = (name: string, more: Partial<LogSource> = {}): LogSource => ({ key: name, namespace: "shop", pod: name + ".oslo", shortName: name, cluster: "oslo", container: "main", run: "1", started: true, running: true, ...more });

/** A hub whose logs the test writes. */
class FakeLogs {
  readonly open: { path: string; signal: AbortSignal; write: (text: string) => void | Promise<void>; end: (e?: unknown) => void }[] = [];
  readonly read: ReadText = (path, signal, onOpen, onChunk) =>
    new Promise((resolve, reject) => {
      onOpen();
      signal.addEventListener("abort", () => reject(new Error("aborted")));
      this.open.push({ path, signal, write: onChunk, end: (e) => (e ? reject(e) : resolve()) });
    });
  podOf(i: number): string {
    return /pods\/([^/]+)\//.exec(this.open[i]!.path)![1]!;
  }
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("containers are followed through breaks and restarts, and all streams end with the view", async (c) => {
  c.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const hub = new FakeLogs();
  let changes = 0;
  const f = new LogFollower({ tail: 10, since: 0 }, () => changes++, hub.read);
  f.setSources([source("a"), source("b", { started: false, running: false })]);
  assert.deepEqual([hub.open.length, f.followed.map((s) => s.state).join(" ")], [1, "open waiting"]);
  void hub.open[0]!.write("2026-11-29T12:00:01Z one\n2026-11-29T12:00:02Z two");
  hub.open[0]!.end();
  await settle();
  assert.equal(f.followed[0]!.state, "broken"); // it runs: the stream broke off
  c.mock.timers.tick(2000);
  await settle();
  assert.ok(hub.open[1]!.path.endsWith("sinceTime=2026-11-29T12%3A00%3A02Z"));
  void hub.open[1]!.write("2026-11-29T12:00:02Z two\n2026-11-29T12:00:03Z three\n");
  c.mock.timers.tick(200);
  assert.equal(texts(f.buffer), "one two three");
  assert.ok(changes > 0);

  f.setSources([source("a", { run: "2" }), source("b")]);
  assert.equal(hub.podOf(2), "b.oslo");
  hub.open[1]!.end();
  await settle();
  assert.deepEqual([hub.open.length, hub.podOf(3)], [4, "a.oslo"]); // the next run
  hub.open[3]!.end(new RequestError(403, "Forbidden", "you may not"));
  hub.open[2]!.end(new RequestError(503, "ServiceUnavailable", "away"));
  await settle();
  assert.deepEqual(f.followed.map((s) => [s.state, s.message]), [["refused", "you may not"], ["broken", "away"]]);
  f.setSources([source("a", { run: "2" }), source("b")]);
  assert.equal(hub.open.length, 4); // what is refused is not asked again
  c.mock.timers.tick(2000);
  await settle();
  assert.equal(hub.open.length, 5);
  f.stop();
  await settle();
  assert.ok(hub.open.every((o) => o.signal.aborted));
  c.mock.timers.tick(60_000);
  assert.equal(hub.open.length, 5);
});

test("no more containers are read than stated, and another one when one ends", async (c) => {
  c.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const hub = new FakeLogs();
  const f = new LogFollower({ tail: 10, since: 0 }, () => undefined, hub.read);
  const many = Array.from({ length: 60 }, (_, i) => source("p" + i));
  f.setSources(many);
  assert.deepEqual([hub.open.length, f.left], [50, 10]);
  hub.open[0]!.end(new RequestError(404, "NotFound", ""));
  await settle();
  assert.deepEqual([hub.open.length, f.left, f.followed[0]!.state], [51, 9, "ended"]);
  for (let i = 1; i < 60; i++) {
    hub.open[i]!.end(new RequestError(404, "NotFound", ""));
    await settle();
  }
  assert.deepEqual([hub.open.length, f.left], [60, 0]);
  f.setSources(many.map((s) => ({ ...s, run: "2" }))); // all have ended, and run again at once
  assert.deepEqual([hub.open.length, f.left], [110, 10]);
  hub.open[60]!.end(new RequestError(404, "NotFound", ""));
  await settle();
  assert.deepEqual([hub.open.length, f.left], [111, 9]);
  f.stop();
});

test("a large chunk arrives in pieces, so that a kept line keeps no more than one", async () => {
  const before = globalThis.fetch;
  const text = "x".repeat(40_000) + "雪".repeat(40_000) + "\n";
  const bytes = new TextEncoder().encode(text);
  globalThis.fetch = (async () => new Response(new ReadableStream({
    start(c) {
      c.enqueue(bytes.subarray(0, 130_000));
      c.enqueue(bytes.subarray(130_000));
      c.enqueue(new Uint8Array([0xe9, 0x9b])); // a character that never ends
      c.close();
    },
  }))) as typeof fetch;
  try {
    const pieces: string[] = [];
    await readText("/x", new AbortController().signal, () => undefined, (piece) => void pieces.push(piece));
    assert.equal(pieces.join(""), text + "\ufffd");
    assert.ok(pieces.every((p) => p.length <= 16 << 10), pieces.map((p) => p.length).join(" "));
  } finally {
    globalThis.fetch = before;
  }
});

test("thousands of pods have as many buttons as a person can read", () => {
  assert.deepEqual(sourcesWithButton([true, false, true], new Set([2])), [0, 1, 2]);
  const ended = Array.from({ length: 3000 }, (_, i) => i !== 7);
  const shown = sourcesWithButton(ended, new Set([3]));
  assert.deepEqual([shown.length, shown.slice(0, 3), shown.at(-1)], [maxButtons, [3, 7, 2902], 2999]);
});

test("a flood waits for the screen", async (c) => {
  c.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const hub = new FakeLogs();
  const f = new LogFollower({ tail: 10, since: 0 }, () => undefined, hub.read);
  f.setSources([source("a"), source("b")]);
  const chunk = "x".repeat(1 << 20) + "\n";
  for (let i = 0; i < 3; i++) assert.equal(hub.open[0]!.write(chunk), undefined);
  let released = 0;
  for (const stream of [hub.open[0]!, hub.open[1]!]) void (stream.write(chunk) as Promise<void>).then(() => released++);
  await settle();
  assert.equal(released, 0);
  c.mock.timers.tick(200);
  await settle();
  assert.equal(released, 2);
  assert.equal(hub.open[0]!.write("more\n"), undefined);
  f.stop();
});

test("an application has the logs of all its workloads", async () => {
  const answers: Record<string, object> = {
    "/console/api/atoll/v1alpha1/tree?name=b&limit=1&namespace=shop": { templates: [{ group: "apps", kind: "Deployment", name: "web", namespace: "shop" }, { kind: "ConfigMap", name: "c" }, { group: "batch", kind: "Job", name: "once" }, { kind: "Pod", name: "p" }] },
    "/console/api/apis/apps/v1/namespaces/shop/deployments/web": { metadata: { name: "web" }, spec: { selector: { matchLabels: { app: "web" } } } },
    "/console/api/apis/batch/v1/namespaces/shop/jobs/once": { metadata: { name: "once" } },
  };
  const before = globalThis.fetch;
  globalThis.fetch = (async (path: string) => {
    return new Response(JSON.stringify(answers[path] ?? { message: path }), { status: answers[path] ? 200 : 404 });
  }) as typeof fetch;
  try {
    assert.deepEqual(await findWorkloads({ kind: "Bundle", namespace: "shop", name: "b" }, new AbortController().signal), { left: 0, workloads: [
      { kind: "Deployment", namespace: "shop", name: "web", selector: "app=web" }, { kind: "Job", namespace: "shop", name: "once", selector: "batch.kubernetes.io/job-name=once" },
    ] });
    answers["/console/api/atoll/v1alpha1/tree?name=big&limit=1&namespace=shop"] = { templates: Array.from({ length: 23 }, () => ({ group: "batch", kind: "Job", name: "once", namespace: "shop" })) };
    const big = await findWorkloads({ kind: "Bundle", namespace: "shop", name: "big" }, new AbortController().signal);
    assert.deepEqual([big.workloads.length, big.left], [20, 3]);
    assert.deepEqual(await findWorkloads({ kind: "Pod", namespace: "shop", name: "p" }, new AbortController().signal), { left: 0, workloads: [{ kind: "Pod", namespace: "shop", name: "p" }] });
  } finally {
    globalThis.fetch = before;
  }
});
