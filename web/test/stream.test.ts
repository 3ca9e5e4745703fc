// Tests of live collections over a hub that fails in every way.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { RequestError, type StreamHandler } from "../src/api/client";
import { Collection, type Transport } from "../src/api/collection";
import type { KubeObject } from "../src/api/kubernetes";

/** A hub whose answers are written down: each request takes the next. */
class FakeHub implements Transport {
  readonly requests: string[] = [];
  constructor(private readonly answers: ((handler?: StreamHandler) => unknown)[]) {}

  private next(path: string, signal: AbortSignal, handler?: StreamHandler): Promise<unknown> {
    this.requests.push(path);
    const answer = this.answers.shift();
    if (!answer) return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
    return Promise.resolve().then(() => answer(handler));
  }

  getJSON<T>(path: string, signal: AbortSignal): Promise<T> {
    return this.next(path, signal) as Promise<T>;
  }

  readLines(path: string, signal: AbortSignal, handler: StreamHandler): Promise<void> {
    return this.next(path, signal, handler) as Promise<void>;
  }
}

const object = (name: string, version: string) => ({ metadata: { name, resourceVersion: version } });

/** Follows a collection until it holds, then stops. */
function until(c: Collection<KubeObject>, holds: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const stop = c.subscribe(() => {
      if (!holds()) return;
      queueMicrotask(() => {
        stop();
        resolve();
      });
    });
  });
}

const names = (c: Collection<KubeObject>) => c.current.items.map((o) => o.metadata.name).join(" ");

test("lists in pages, watches from there, and goes on after the stream is cut", async () => {
  const hub = new FakeHub([
    () => ({ metadata: { continue: "next" }, items: [object("a", "1")] }),
    () => ({ metadata: { resourceVersion: "5" }, items: [object("b", "2")] }),
    (h) => {
      h!.onOpen();
      h!.onLine({ type: "ADDED", object: object("c", "6") });
      h!.onLine({ type: "BOOKMARK", object: object("", "8") });
      throw new RequestError(0, "Cut", "");
    },
    (h) => {
      h!.onOpen();
      h!.onLine({ type: "DELETED", object: object("a", "9") });
      h!.onLine({ type: "MODIFIED", object: object("b", "10") });
    },
  ]);
  const c = new Collection<KubeObject>("/things", "labelSelector=x", hub);
  await until(c, () => names(c) === "b c");
  const query = (i: number) => new URLSearchParams(hub.requests[i]!.split("?")[1]);
  assert.equal(query(1).get("continue"), "next");
  assert.equal(query(2).get("resourceVersion"), "5");
  assert.equal(query(2).get("allowWatchBookmarks"), "true");
  assert.equal(query(3).get("resourceVersion"), "8");
  assert.equal(query(3).get("labelSelector"), "x");
});

test("lists again after an expired version", async () => {
  const hub = new FakeHub([
    () => ({ metadata: { resourceVersion: "5" }, items: [object("a", "1")] }),
    (h) => {
      h!.onOpen();
      h!.onLine({ type: "ERROR", object: { kind: "Status", code: 410, reason: "Expired" } });
    },
    () => ({ metadata: { resourceVersion: "9" }, items: [object("z", "9")] }),
  ]);
  const c = new Collection<KubeObject>("/things", "", hub);
  await until(c, () => names(c) === "z");
});

test("a refusal is not asked for ever", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.parse("2026-11-29T12:00:00Z") });
  try {
    const refuse = () => { throw new RequestError(403, "Forbidden", "no"); };
    const hub = new FakeHub(Array.from({ length: 20 }, () => refuse));
    const stop = new Collection<KubeObject>("/things", "", hub).subscribe(() => undefined);
    for (let i = 0; i < 100; i++) {
      mock.timers.tick(30_000);
      await new Promise((r) => setImmediate(r));
    }
    stop();
    assert.equal(hub.requests.length, 7);
  } finally {
    mock.timers.reset();
  }
});

test("a refusal at first is shown, a refusal of a starting hub is not", async () => {
  const refused = new Collection<KubeObject>("/things", "", new FakeHub([() => { throw new RequestError(403, "Forbidden", "no"); }]));
  await until(refused, () => refused.current.refusal?.code === 403);
  const hub = new FakeHub([
    () => ({ metadata: { resourceVersion: "5" }, items: [object("a", "1")] }),
    (h) => {
      h!.onOpen();
      throw new RequestError(0, "Cut", "");
    },
    () => { throw new RequestError(403, "Forbidden", "rights are being read"); },
    (h) => {
      h!.onOpen();
      h!.onLine({ type: "ADDED", object: object("b", "6") });
    },
  ]);
  const c = new Collection<KubeObject>("/things", "", hub);
  let refusals = 0;
  await until(c, () => {
    if (c.current.refusal) refusals++;
    return names(c) === "a b";
  });
  assert.equal(refusals, 0);
});
