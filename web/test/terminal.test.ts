import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod } from "../src/api/kubernetes";
import { decodeMessage, encodeInput, encodeSize, endOfClose, readEnd, terminalCommand, terminalContainers, terminalPath, wordsOf } from "../src/model/terminal";

const bytes = (text: string) => new TextEncoder().encode(text);

test("messages begin with their channel", () => {
  assert.deepEqual([...encodeInput(bytes("ls"))[0]!], [0, 108, 115]);
  const size = encodeSize(80, 24);
  assert.equal(size[0], 4);
  assert.equal(new TextDecoder().decode(size.subarray(1)), '{"Width":80,"Height":24}');
  const message = decodeMessage(Uint8Array.from([1, 0x1b, 0xff]).buffer)!;
  assert.equal(message.channel, 1);
  assert.deepEqual([...message.bytes], [0x1b, 0xff]);
  for (const none of [new ArrayBuffer(0), "text", undefined, null, { byteLength: 3 }]) assert.equal(decodeMessage(none), undefined);
});

test("a long input is many messages, and nothing of it is lost", () => {
  const input = Uint8Array.from({ length: 100_001 }, (_, i) => i % 251);
  const parts = encodeInput(input);
  assert.ok(parts.every((p) => p[0] === 0 && p.length <= (16 << 10) + 1));
  assert.deepEqual(Uint8Array.from(parts.flatMap((p) => [...p.subarray(1)])), input);
  assert.deepEqual(encodeInput(new Uint8Array(0)), []);
});

test("a status is the end", () => {
  const ofExit = (code: unknown) => bytes(JSON.stringify({ status: "Failure", reason: "NonZeroExitCode", message: "command terminated with non-zero exit code", details: { causes: [{ reason: "ExitCode", message: code }] } }));
  assert.deepEqual(readEnd(bytes('{"metadata":{},"status":"Success"}')), { kind: "exited", code: 0 });
  assert.deepEqual(readEnd(ofExit("3")), { kind: "exited", code: 3 });
  assert.deepEqual(readEnd(ofExit("127")), { kind: "noCommand" });
  assert.deepEqual(readEnd(ofExit("many")), { kind: "broken" });
  const missing = 'Internal error occurred: failed to exec in container: exec: "bash": executable file not found in $PATH: unknown';
  assert.deepEqual(readEnd(bytes(JSON.stringify({ status: "Failure", reason: "InternalError", message: missing, code: 500 }))), { kind: "noCommand" });
  const away = "cluster oslo cannot be reached: its agent is not connected to the hub, since about 12:00";
  assert.deepEqual(readEnd(bytes(JSON.stringify({ status: "Failure", message: away, code: 503 }))), { kind: "refused", code: 503, message: away });
  for (const wrong of ["", "{", "x".repeat(100_000)]) assert.deepEqual(readEnd(bytes(wrong)), { kind: "broken" });
  for (const odd of ["null", "[]", "7", '{"message":{"a":1},"code":"x"}', '{"reason":"NonZeroExitCode","details":{"causes":"x"}}', '{"reason":"NonZeroExitCode","details":{"causes":[null]}}']) assert.doesNotThrow(() => readEnd(bytes(odd)), odd);
});

test("the hub's codes are reasons", () => {
  assert.deepEqual([4001, 4002, 4003, 1006, 1000].map((c) => endOfClose(c).kind), ["sessionOver", "signedOut", "idle", "broken", "broken"]);
});

test("the path and the command of kubectl name the same", () => {
  const c = { namespace: "shop", pod: "web-1.oslo", container: "web", words: wordsOf("  sh -c   a&b ") };
  assert.equal(terminalPath(c), "/api/v1/namespaces/shop/pods/web-1.oslo/exec?container=web&stdin=true&stdout=true&tty=true&command=sh&command=-c&command=a%26b");
  assert.equal(terminalCommand(c), "kubectl exec -it -n shop web-1.oslo -c web -- sh -c 'a&b'");
  assert.equal(terminalCommand({ ...c, words: ["\u202e"] }), undefined);
  assert.ok(terminalPath({ ...c, pod: "../../secrets" }).startsWith("/api/v1/namespaces/shop/pods/..%2F..%2Fsecrets/exec?"));
  assert.deepEqual(wordsOf("   "), []);
});

test("the containers of a pod", () => {
  const pod: Pod = {
    metadata: { name: "web", annotations: { "kubectl.kubernetes.io/default-container": "app" } },
    spec: { containers: [{ name: "side" }, { name: "app" }], initContainers: [{ name: "setup" }, { name: "proxy" }], ephemeralContainers: [{ name: "debug" }] },
    status: { initContainerStatuses: [{ name: "proxy", ready: true, restartCount: 0, state: { running: {} } }], ephemeralContainerStatuses: [{ name: "debug", ready: false, restartCount: 0, state: { running: {} } }] },
  };
  assert.deepEqual(terminalContainers(pod), ["app", "side", "proxy", "debug"]);
  assert.deepEqual(terminalContainers({ metadata: { name: "empty" } }), []);
});
