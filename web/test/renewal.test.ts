// Tests of the renewal of sessions.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { RequestError, getJSON, recoverSession, sendWrite, setSignedOutHandler } from "../src/api/client";
import { beginSession, endSession, openSession, renewOnce, stopRenewal } from "../src/api/renewal";

const person = (more: object = {}) => {
  const p = { user: "aiko", until: "2026-11-30T12:00:00Z", renewInSeconds: 600, ...more };
  return { session: p.until, ...p };
};
const refusal = (code: number, reason: string) => ({ code, body: { kind: "Status", code, reason, message: "" } });
type Answer = { code: number; body: object };

/** Runs a function against a hub with the answers, in turn by method and path; the last one stays. Returns the requests. */
async function against(answers: Record<string, Answer[]>, run: () => Promise<unknown>): Promise<string[]> {
  const requests: string[] = [];
  const before = globalThis.fetch;
  globalThis.fetch = (async (path: string, init: RequestInit) => {
    const key = `${init.method ?? "GET"} ${path.slice("/console".length)}`;
    requests.push(key);
    const row = answers[key]!;
    const { code, body } = row.length > 1 ? row.shift()! : row[0]!;
    return new Response(JSON.stringify(body), { status: code });
  }) as typeof fetch;
  try {
    await run();
  } finally {
    stopRenewal();
    globalThis.fetch = before;
  }
  return requests;
}

const ok = (body: object) => ({ code: 200, body });
const isCode = (code: number) => (e: unknown) => e instanceof RequestError && e.code === code;

test("a session whose token has ended is renewed as the page is loaded", async () => {
  const requests = await against({ "GET /session": [refusal(401, "Expired")], "POST /session/renewal": [ok(person())] }, async () => {
    assert.equal((await openSession()).user, "aiko");
  });
  assert.deepEqual(requests, ["GET /session", "GET /session", "POST /session/renewal"]);
});

test("without a renewal, the sign-in page comes at once", async () => {
  const requests = await against({ "GET /session": [refusal(401, "Unauthorized")] }, async () => {
    await assert.rejects(openSession(), isCode(401));
  });
  assert.deepEqual(requests, ["GET /session"]);
});

test("a request that is refused is sent again after one renewal, also of several requests", async () => {
  let isOver = false;
  setSignedOutHandler(() => (isOver = true));
  const requests = await against({
    "GET /session": [ok(person()), refusal(401, "Expired")], "POST /session/renewal": [ok(person())],
    "GET /api/a": [refusal(401, "Unauthorized"), ok({ name: "a" })], "GET /api/b": [refusal(401, "Unauthorized"), ok({ name: "b" })],
  }, async () => {
    await openSession();
    const both = await Promise.all([getJSON<{ name: string }>("/a"), getJSON<{ name: string }>("/b")]);
    assert.deepEqual(both.map((o) => o.name), ["a", "b"]);
  });
  assert.equal(requests.filter((r) => r === "POST /session/renewal").length, 1);
  assert.equal(isOver, false);
});

test("what another tab has renewed is not renewed again", async () => {
  const requests = await against({ "GET /session": [ok(person()), ok(person({ renewInSeconds: 500 }))], "GET /api/a": [refusal(401, "Unauthorized"), ok({})] }, async () => {
    await openSession();
    await getJSON("/a");
  });
  assert.deepEqual(requests, ["GET /session", "GET /api/a", "GET /session", "GET /api/a"]);
});

test("after another sign-in in the browser, nothing is sent as the other person", async () => {
  for (const other of [person({ user: "root" }), person({ until: "2026-11-30T13:00:00Z" })]) {
    let isOver = false;
    setSignedOutHandler(() => (isOver = true));
    const requests = await against({ "GET /session": [ok(person()), ok(other)], "PATCH /api/a": [refusal(401, "Unauthorized"), ok({})] }, async () => {
      await openSession();
      await assert.rejects(sendWrite({ method: "PATCH", path: "/a", body: "{}" }), isCode(401));
    });
    assert.deepEqual(requests, ["GET /session", "PATCH /api/a", "GET /session"]);
    assert.equal(isOver, true);
  }
});

test("a refused renewal ends the session", async () => {
  let isOver = false;
  setSignedOutHandler(() => (isOver = true));
  await against({ "GET /session": [ok(person()), refusal(401, "Expired")], "POST /session/renewal": [refusal(401, "Unauthorized")], "GET /api/a": [refusal(401, "Unauthorized")] }, async () => {
    await openSession();
    await assert.rejects(getJSON("/a"), isCode(401));
  });
  assert.equal(isOver, true);
});

// The cookies of a renewal's late answer would sign the person in again, or take the place of the next person's.
test("a renewal that is under way ends before a sign-out, and before the next sign-in", async () => {
  for (const [end, request] of [[endSession, "DELETE /session"], [() => beginSession("token"), "POST /session"]] as const) {
    const events: string[] = [];
    const answers: Record<string, Answer[]> = {
      "GET /session": [ok(person()), refusal(401, "Expired")], "POST /session/renewal": [ok(person())], "DELETE /session": [ok({ issuerSignOut: "" })], "POST /session": [ok(person())],
    };
    await against(answers, async () => {
      await openSession();
      const hub = globalThis.fetch;
      let answer = () => {};
      const slow = new Promise<void>((done) => (answer = done));
      const arrived = new Promise<void>((done) => {
        globalThis.fetch = (async (path: string, init: RequestInit) => {
          events.push(`${init.method ?? "GET"} ${path.slice("/console".length)}`);
          if (path.endsWith("/renewal")) {
            done();
            await slow;
            events.push("renewed");
          }
          return hub(path, init);
        }) as typeof fetch;
      });
      const renewal = renewOnce();
      await arrived;
      const ended = end();
      await new Promise(setImmediate); // a request that does not wait is sent by now
      answer();
      await Promise.all([renewal, ended]);
    });
    assert.deepEqual(events, ["GET /session", "POST /session/renewal", "renewed", request]);
  }
});

test("while the issuer does not renew a session whose token has ended, the sign-in page comes, which tells why", async () => {
  for (const code of [429, 503]) {
    const requests = await against({ "GET /session": [refusal(401, "Expired")], "POST /session/renewal": [refusal(code, "")] }, async () => {
      await assert.rejects(openSession(), isCode(401));
    });
    assert.deepEqual(requests, ["GET /session", "GET /session", "POST /session/renewal"]);
  }
});

test("an issuer that is down is asked less and less, and not by all pages at once", async () => {
  for (const [random, most] of [[0, 10], [0.999, 7]] as const) {
    mock.timers.enable({ apis: ["setTimeout"] });
    mock.method(Math, "random", () => random);
    try {
      const answers = { "GET /session": [ok(person()), ok(person({ renewInSeconds: 1 }))], "POST /session/renewal": [refusal(503, "ServiceUnavailable")] };
      const requests = await against(answers, async () => {
        await openSession();
        for (let second = 0; second < 600 + 900; second++) {
          mock.timers.tick(1000);
          await new Promise(setImmediate);
        }
      });
      const renewals = requests.filter((r) => r === "POST /session/renewal").length;
      assert.ok(renewals >= 4 && renewals <= most, `${renewals} renewals in 15 minutes`);
    } finally {
      mock.restoreAll();
      mock.timers.reset();
    }
  }
});

test("a refusal of a terminal signs the page out only where the hub has no session, or another one", async () => {
  const pasted = person({ renewInSeconds: undefined });
  const cases: [Answer, boolean][] = [
    [ok(pasted), false], [refusal(503, "ServiceUnavailable"), false], [refusal(401, "Unauthorized"), true], [ok(person({ until: "2026-11-30T13:00:00Z" })), true],
  ];
  for (const [answer, want] of cases) {
    let isOver = false;
    setSignedOutHandler(() => (isOver = true));
    await against({ "GET /session": [ok(pasted), answer] }, async () => {
      await openSession();
      assert.equal(await recoverSession(), false);
    });
    assert.equal(isOver, want, JSON.stringify(answer));
  }
});
