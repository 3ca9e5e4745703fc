import assert from "node:assert/strict";
import { test } from "node:test";

import { zonesOf } from "../src/model/cluster";

test("a cluster has one zone, or several", () => {
  const zones = (spec: object) => zonesOf({ metadata: { name: "oslo" }, spec });
  assert.deepEqual(zones({}), []);
  assert.deepEqual(zones({ zone: "no-1" }), ["no-1"]);
  assert.deepEqual(zones({ zones: ["no-1", "no-2"] }), ["no-1", "no-2"]);
  assert.deepEqual(zones({ zone: "no-1", zones: [] }), ["no-1"]);
});
