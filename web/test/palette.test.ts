// Tests of the command palette.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Found } from "../src/api/fleet";
import { type Entry, type EntryGroup, findEntries, foundEntries, maxEntries, searchText } from "../src/model/palette";

function entry(group: EntryGroup, title: string, detail = "", ...words: string[]): Entry {
  return { key: group + "/" + title, group, title, detail, words };
}

const entries = [
  entry("cluster", "oslo-web"), entry("cluster", "web-1", "eu · Ready", "env=prod"), entry("cluster", "cobweb"), entry("cluster", "berlin", "eu · Ready", "tier=web"),
  entry("logs", "web", "shop", "logs"), entry("application", "web", "shop · Ready"), entry("application", "webshop", "shop"),
  entry("page", "Fleet"), entry("action", "Sign out"),
];
const titles = (found: Entry[]) => found.map((e) => `${e.group} ${e.title}`);

test("the best entries come first", () => {
  for (const [query, ...want] of [
    ["web", "application web", "logs web", "application webshop", "cluster web-1", "cluster oslo-web", "cluster cobweb", "cluster berlin"],
    ["WEB ready", "application web", "cluster web-1", "cluster berlin"],
    ["web logs", "logs web"],
    ["env=prod", "cluster web-1"],
    ["fleet", "page Fleet"],
    ["  ", "page Fleet", "action Sign out"],
    ["web nowhere"],
  ]) assert.deepEqual(titles(findEntries(entries, query!)), want, query);
});

test("of a large fleet the same entries are shown as by a look at all", () => {
  const many = Array.from({ length: 20_000 }, (_, i) => entry("cluster", `c${(i * 7919) % 20_000}-${i % 3 ? "edge" : "core"}`, "eu"));
  const found = titles(findEntries(many, "edge"));
  const all = many.filter((e) => e.title.includes("edge")).sort((a, b) => a.title.length - b.title.length || (a.title < b.title ? -1 : 1));
  assert.equal(found.length, maxEntries);
  assert.deepEqual(found, titles(all.slice(0, maxEntries)));
});

const copied: string[] = [];
const texts = { stateOf: (s: string) => s + "!", addressOf: (...path: string[]) => path.join(":"), actionOf: (a: string) => a + "…", copyOf: (c: string) => "copies " + c, copy: (c: string) => void copied.push(c) };

test("found objects have the addresses of their pages, logs and actions", () => {
  const entries = (f: Found) => foundEntries([f], texts).map((e) => [e.group, e.title, e.detail, e.to]);
  assert.deepEqual(entries({ kind: "Cluster", name: "oslo", detail: "Ready" }), [["cluster", "oslo", "Ready!", "clusters:oslo"]]);
  assert.deepEqual(entries({ kind: "Bundle", namespace: "shop", name: "deployment-web-1", title: "web" }), [["application", "web", "shop", "applications:shop:deployment-web-1"], ["logs", "web", "shop", "logs:shop:Bundle:deployment-web-1"]]);
  assert.deepEqual(entries({ kind: "ClusterBundle", name: "base" }), [["application", "base", "", "applications:-:base"]]);
  assert.deepEqual(entries({ kind: "Source", namespace: "shop", name: "front" }), [["source", "front", "shop", "sources:shop:front"], ["action", "front", "sync… · shop", "sources:shop:front?act=sync"], ["action", "front", "suspend… · shop", "sources:shop:front?act=suspend"]]);
  assert.deepEqual(entries({ kind: "Source", namespace: "shop", name: "front", detail: "Suspended" }).map((e) => e[3]), ["sources:shop:front", "sources:shop:front?act=resume"]);
  assert.deepEqual(entries({ kind: "PropagationPolicy", namespace: "shop", name: "p" }), [["policy", "p", "PropagationPolicy · shop", "applications?q=policy%3Ap%20ns%3Ashop"]]);
});

test("objects without a page have a command to copy", () => {
  const found = foundEntries([{ kind: "Placement", namespace: "shop", name: "eu" }, { kind: "ClusterOverridePolicy", name: "all" }], texts);
  assert.deepEqual(found.map((e) => [e.group, e.to]), [["placement", undefined], ["policy", undefined]]);
  for (const e of found) e.run?.();
  assert.deepEqual(copied, ["kubectl get placement.atoll.dev eu -n shop -o yaml", "kubectl get clusteroverridepolicy.atoll.dev all -o yaml"]);
});

test("the hub searches for names, without the words that choose an entry", () => {
  for (const [query, want] of [["Web logs", "web"], ["sync storefront", "storefront"], ["logs", "logs"], ["  ", ""], ["a b", "a b"]] as const) assert.equal(searchText(query), want, query);
  const found = foundEntries([{ kind: "Source", namespace: "shop", name: "front" }], texts);
  assert.deepEqual(findEntries(found, "front suspend").map((e) => e.to), ["sources:shop:front?act=suspend"]);
  assert.equal(findEntries(found, "front")[0]!.to, "sources:shop:front");
});
