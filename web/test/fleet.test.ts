// Tests of the fleet page: its streams, its question, and its map.

import assert from "node:assert/strict";
import { test } from "node:test";
import { type FleetPage, type PageLine, type SlimCluster, applyPageLine, applySourcesLine } from "../src/api/fleet";
import type { Source } from "../src/api/types.gen";
import { type FleetQuery, blockGroups, countStates, cutBytes, drillInto, fleetParameters, leaveGroup, listCounts, maxTiles, nextCell, readFleetQuery, stateSigns, tileGroups } from "../src/model/fleet";
import { clusterStatuses } from "../src/model/cluster";

const slim = (name: string, state: SlimCluster["state"] = "Ready", ...groups: string[]): SlimCluster => ({ name, state, groups });

function page(clusters: SlimCluster[], more: Partial<PageLine["page"]> = {}): PageLine["page"] {
  return { clusters, all: 9, before: 0, matching: clusters.length, states: {}, ...more };
}

const names = (p: FleetPage) => p.clusters.map((c) => c.name + ":" + c.state).join(" ");

test("a page follows its stream", () => {
  let p = applyPageLine(undefined, { type: "PAGE", page: page([slim("a"), slim("b")]) });
  assert.equal(names(p), "a:Ready b:Ready");
  p = applyPageLine(p, { type: "CHANGED", page: page([slim("b", "Away")], { matching: 5 }) });
  assert.equal(names(p), "a:Ready b:Away");
  assert.equal(p.matching, 5);
  p = applyPageLine(p, { type: "CHANGED", page: page([slim("c")], { order: ["b", "c"] }) });
  assert.equal(names(p), "b:Away c:Ready");
  assert.ok(!("order" in p));
  p = applyPageLine(p, { type: "PAGE", page: page([]) });
  assert.equal(names(p), "");
});

test("Sources are whole with their last part, and follow changes", () => {
  const source = (name: string, commit: string) => ({ metadata: { namespace: "shop", name }, spec: {}, status: { commit } }) as unknown as Source;
  let list = applySourcesLine(undefined, { type: "SOURCES", sources: [source("a", "1")] });
  assert.equal(list.complete, false);
  list = applySourcesLine(list, { type: "SOURCES", sources: [source("b", "1")], complete: true });
  assert.equal(list.complete, true);
  list = applySourcesLine(list, { type: "CHANGED", sources: [source("b", "2")], gone: [{ namespace: "shop", name: "a" }, { namespace: "other", name: "b" }] });
  assert.deepEqual(list.items.map((s) => [s.metadata.name, s.status?.commit]), [["b", "2"]]);
  assert.equal(list.complete, true);
});

const address = (text: string) => new URLSearchParams(text);

test("the address holds the question", () => {
  const f = readFleetQuery(address("q=oslo+prod&status=Away&by=zone&group=region&value=eu&group=label:a/b&value="), "region");
  assert.deepEqual(f, { text: "oslo prod", status: "Away", by: "zone", groups: [["region", "eu"], ["label:a/b", ""]] });
  assert.equal(fleetParameters(f).toString(), "q=oslo+prod&status=Away&by=zone&group=region&value=eu&group=label%3Aa%2Fb&value=");
  assert.deepEqual(readFleetQuery(address("group=region"), "region"), { text: "", status: "", by: "region", groups: [] });
  assert.equal(fleetParameters({ text: "  ", status: "", by: "", groups: [] }).toString(), "");
  assert.equal(cutBytes("aé€", 5), "aé");
  assert.equal(cutBytes("aé€", 6), "aé€");
});

test("a person goes into groups and out of them", () => {
  const read = (q: URLSearchParams): FleetQuery => readFleetQuery(q, "region");
  const start = address("view=map&q=x");
  const large = drillInto(start, read(start), { value: "eu", clusters: maxTiles + 1, states: {} });
  assert.equal(large.toString(), "view=map&q=x&group=region&value=eu&by=zone");
  const small = drillInto(large, read(large), { value: "", clusters: 3, states: {} });
  assert.equal(small.toString(), "view=map&q=x&group=region&value=eu&by=zone&group=zone&value=");
  assert.deepEqual(read(leaveGroup(small, read(small), 0)), { text: "x", status: "", by: "region", groups: [["zone", ""]] });
  assert.deepEqual(read(leaveGroup(small, read(small), 1)).groups, [["region", "eu"]]);
  let deep = start;
  for (let i = 0; i < 8; i++) deep = drillInto(deep, read(deep), { value: "v", clusters: maxTiles + 1, states: {} });
  assert.equal(read(deep).by, "status");
});

test("tiles are in groups, numbers by their value, the group without a value last", () => {
  const groups = tileGroups([slim("a", "Away", "z10"), slim("b", "Ready", "z9"), slim("c", "Ready", ""), slim("d", "Ready", "z9", "z10"), { name: "e", state: "Ready" }]);
  assert.deepEqual(groups.map((g) => [g.value, g.clusters.map((c) => c.name).join("")]), [["z9", "bd"], ["z10", "ad"], ["", "ce"]]);
  assert.deepEqual(countStates(groups[1]!.clusters), { Away: 1, Ready: 1 });
  assert.deepEqual(listCounts({ Ready: 2, Away: 1 }).filter(([, n]) => n > 0), [["Away", 1], ["Ready", 2]]);
  const counts = { all: 0, matching: 0, states: {}, groups: [{ value: "", clusters: 1, states: {} }, { value: "b", clusters: 2, states: {} }] };
  assert.deepEqual(blockGroups(counts).map((g) => g.value), ["b", ""]);
});

test("each state has a sign of its own", () => {
  assert.equal(new Set(clusterStatuses.map((s) => stateSigns[s])).size, clusterStatuses.length);
});

test("arrow keys move among cells in rows", () => {
  const cells = [[0, 0], [0, 30], [0, 60], [40, 0], [40, 30], [90, 5]].map(([top, left]) => ({ top: top!, left: left! }));
  for (const [at, key, want] of [
    [0, "ArrowRight", 1], [5, "ArrowRight", 5], [0, "ArrowLeft", 0], [4, "ArrowLeft", 3], [2, "Home", 0], [2, "End", 5],
    [1, "ArrowDown", 4], [2, "ArrowDown", 4], [4, "ArrowDown", 5], [5, "ArrowDown", 5], [5, "ArrowUp", 3], [4, "ArrowUp", 1], [0, "ArrowUp", 0],
    [0, "Enter", undefined], [0, "Tab", undefined],
  ] as const) assert.equal(nextCell(cells, at, key), want, `${at} ${key}`);
  assert.equal(nextCell([], 0, "ArrowDown"), 0);
});
