// Tests of the sign-in by a one-time code.

import assert from "node:assert/strict";
import { test } from "node:test";
import { declineOffer, offerSession } from "../src/api/client";
import { acceptOffer } from "../src/api/renewal";
import { codeOf } from "../src/model/code";

test("the code of a fragment", () => {
  assert.equal(codeOf("#code=abc-DEF_0"), "abc-DEF_0");
  for (const none of ["", "#", "#code=", "#code=a b", "#code=a&b=c", "code=abc", "#other=abc", "#code=<script>", "#code=" + "a".repeat(257), "#code=%41"]) assert.equal(codeOf(none), "", none);
});

test("the code is in a body, and what is agreed to is named", async () => {
  const requests: string[] = [];
  const before = globalThis.fetch;
  globalThis.fetch = (async (path: string, init: RequestInit) => {
    requests.push(`${init.method} ${path} ${init.body ?? ""}`);
    if (init.method === "DELETE") return new Response(null, { status: 204 });
    return new Response(JSON.stringify({ user: "aiko", offer: "hash", until: "2026-11-30T12:00:00Z" }));
  }) as typeof fetch;
  try {
    assert.equal((await offerSession("secret")).offer, "hash");
    assert.equal((await acceptOffer("hash")).user, "aiko");
    await declineOffer();
  } finally {
    globalThis.fetch = before;
  }
  assert.deepEqual(requests, ['POST /console/session/code {"code":"secret"}', 'PUT /console/session/code {"offer":"hash"}', "DELETE /console/session/code "]);
});
