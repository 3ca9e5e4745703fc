// The protocol of the API for commands in containers, v5.channel.k8s.io: each message begins with its channel.

import type { Pod } from "../api/kubernetes";
import { containerStatus } from "./logsources";
import { commandOf } from "./shell";

/** The channels that a terminal uses. With a terminal, the standard error of a command is a part of its output. */
export const channels = { input: 0, output: 1, errors: 2, status: 3, resize: 4 } as const;

/** So many bytes are one message. */
const maxInput = 16 << 10;
/** A status is longer than this only by mistake. */
const maxStatus = 64 << 10;

/** Returns the messages of an input. */
export function encodeInput(bytes: Uint8Array): Uint8Array[] {
  const out: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += maxInput) out.push(encodeMessage(channels.input, bytes.subarray(at, at + maxInput)));
  return out;
}

/** Returns the message of a size in characters. */
export function encodeSize(columns: number, rows: number): Uint8Array {
  return encodeMessage(channels.resize, new TextEncoder().encode(JSON.stringify({ Width: columns, Height: rows })));
}

function encodeMessage(channel: number, bytes: Uint8Array): Uint8Array {
  const out = new Uint8Array(bytes.length + 1);
  out[0] = channel;
  out.set(bytes, 1);
  return out;
}

/** Returns the channel of a message, and its content; nothing for a message without a channel. */
export function decodeMessage(data: unknown): { channel: number; bytes: Uint8Array } | undefined {
  if (!(data instanceof ArrayBuffer) || data.byteLength === 0) return undefined;
  const all = new Uint8Array(data);
  return { channel: all[0]!, bytes: all.subarray(1) };
}

/** Why a terminal is not open any more. */
export type TerminalEnd =
  | { kind: "exited"; code: number }
  | { kind: "noCommand" }
  | { kind: "refused"; code: number; message: string }
  | { kind: "idle" | "sessionOver" | "signedOut" | "broken" | "closed" };

interface ExitStatus {
  status?: string;
  reason?: string;
  message?: string;
  code?: number;
  details?: { causes?: { reason?: string; message?: string }[] };
}

/** Reads the status in which a command ended, or for which it did not begin. */
export function readEnd(bytes: Uint8Array): TerminalEnd {
  let s: ExitStatus = {};
  try {
    s = (JSON.parse(new TextDecoder().decode(bytes.subarray(0, maxStatus))) ?? {}) as ExitStatus;
  } catch {
    return { kind: "broken" };
  }
  const message = typeof s.message === "string" ? s.message : "";
  if (s.status === "Success") return { kind: "exited", code: 0 };
  if (/executable file not found|no such file or directory/i.test(message)) return { kind: "noCommand" };
  if (s.reason === "NonZeroExitCode") {
    const code = Number((Array.isArray(s.details?.causes) ? s.details.causes : []).find((c) => c?.reason === "ExitCode")?.message);
    return code === 127 ? { kind: "noCommand" } : Number.isInteger(code) ? { kind: "exited", code } : { kind: "broken" };
  }
  return { kind: "refused", code: typeof s.code === "number" ? s.code : 0, message };
}

/** The codes by which the hub closes a terminal. */
const closeCodes: Record<number, TerminalEnd> = { 4001: { kind: "sessionOver" }, 4002: { kind: "signedOut" }, 4003: { kind: "idle" } };

/** Returns why a terminal without a status was closed. */
export function endOfClose(code: number): TerminalEnd {
  return closeCodes[code] ?? { kind: "broken" };
}

/** The command that a terminal runs. */
export interface TerminalCommand {
  namespace: string;
  pod: string;
  container: string;
  words: readonly string[];
}

/** Returns the words of a command. Quotes have no meaning: a script belongs into the shell. */
export function wordsOf(text: string): string[] {
  return text.trim().split(/\s+/).filter(Boolean);
}

/** Returns the path of the API for a terminal. */
export function terminalPath(c: TerminalCommand): string {
  const query = new URLSearchParams([["container", c.container], ["stdin", "true"], ["stdout", "true"], ["tty", "true"], ...c.words.map((w) => ["command", w])]);
  return `/api/v1/namespaces/${encodeURIComponent(c.namespace)}/pods/${encodeURIComponent(c.pod)}/exec?${query}`;
}

/** Returns the command of kubectl that does the same. */
export function terminalCommand(c: TerminalCommand): string | undefined {
  return commandOf("kubectl", "exec", "-it", "-n", c.namespace, c.pod, "-c", c.container, "--", ...c.words);
}

/** Returns the containers in which a command can run, the default one first. */
export function terminalContainers(pod: Pod): string[] {
  const running = (name: string) => !!containerStatus(pod, name)?.state?.running;
  const main = (pod.spec?.containers ?? []).map((c) => c.name);
  const others = [...(pod.spec?.initContainers ?? []), ...(pod.spec?.ephemeralContainers ?? [])].map((c) => c.name).filter(running);
  const chosen = pod.metadata.annotations?.["kubectl.kubernetes.io/default-container"];
  return [...main.filter((c) => c === chosen), ...main.filter((c) => c !== chosen), ...others];
}
