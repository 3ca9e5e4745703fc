// Tests of the command palette.

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Entry, type EntryGroup, applicationEntries, clusterEntries, findEntries, maxEntries } from "../src/model/palette";
import { appRow } from "../src/model/application";
import { clusterRow } from "../src/model/cluster";

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

test("entries have the addresses of their pages", () => {
  const clusters = clusterEntries([clusterRow({ metadata: { name: "a/b", labels: { env: "prod" } }, spec: { accepted: true, region: "eu" } })], (name) => "c:" + name, (s) => s + "!");
  assert.deepEqual(clusters.map((e) => [e.key, e.detail, e.to, ...e.words]), [["cluster/a/b", "eu · Unknown!", "c:a/b", "", "env=prod"]]);
  const row = (namespace: string) => appRow({ metadata: { namespace, name: "web" }, spec: { source: { kind: "PropagationPolicy", name: "p" } } } as never);
  const apps = applicationEntries([row("shop"), row("")], (view, r) => `${view}:${r.namespace}:${r.name}`, (s) => s);
  assert.deepEqual(apps.map((e) => [e.group, e.to]), [["application", "applications:shop:web"], ["logs", "logs:shop:web"], ["application", "applications::web"]]);
});
