// Requests to the hub. All of them go to the console's own address, with the cookie that the script cannot read.

import type { Status } from "./kubernetes";

/** A refusal of the hub, or a request that did not reach it (code 0). */
export class RequestError extends Error {
  constructor(readonly code: number, readonly reason: string, message: string, readonly retryAfter = 0) {
    super(message);
  }
}

/** The signed-in person. */
export interface Person {
  user: string;
  groups?: string[];
  until: string;
  /** The name by which the page states the session that it shows. */
  session: string;
  /** When the page renews the session. */
  renewInSeconds?: number;
}

const root = "/console";
let onSignedOut: () => void = () => {};
/** The name of the session that the page shows. A write names it, and is refused after another sign-in in this browser. */
let session = "";

/** Renews the session after a refusal. It reports whether the session is good again. */
let renew: () => Promise<boolean> = async () => false;

/** Sets how a session is renewed. */
export function setRenewal(renewal: () => Promise<boolean>): void {
  renew = renewal;
}

/** Sets what happens when the hub reports that the session is over. */
export function setSignedOutHandler(handler: () => void): void {
  onSignedOut = handler;
}

/** Sends a request, again after a renewal of the session where its token has ended. */
async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const isSession = path.startsWith("/session");
  try {
    return await sendOnce(path, init);
  } catch (e) {
    if (!(e instanceof RequestError) || e.code !== 401 || isSession) throw e;
    if (await renew()) return sendOnce(path, init);
    onSignedOut();
    throw e;
  }
}

/**
 * Renews the session after a refusal that is no answer to send, and reports whether it is good again. A member may have sent the
 * refusal, so the page is signed out only when the hub reports no session, or another one.
 */
export async function recoverSession(): Promise<boolean> {
  if (await renew()) return true;
  try {
    if ((await getPerson()).session === session) return false;
  } catch (e) {
    if (!(e instanceof RequestError) || e.code !== 401) return false;
  }
  onSignedOut();
  return false;
}

/** Returns the address of a WebSocket to a path of the hub's API. */
export function webSocketAddress(path: string): string {
  return "wss://" + location.host + root + "/api" + path;
}

/** Returns the protocol by which a WebSocket names the session of the page, as other requests do by a header. */
export function sessionProtocol(): string {
  return "session.console.atoll.dev." + session;
}

async function sendOnce(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set("X-Atoll-Console", "1");
  headers.set("Accept", "application/json");
  if (init.method) headers.set("X-Atoll-Session", session);
  let response: Response;
  try {
    response = await fetch(root + path, { ...init, headers, credentials: "same-origin", redirect: "error" });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new RequestError(0, "Unreachable", "");
  }
  if (response.ok) return response;
  throw await readError(response);
}

async function readError(response: Response): Promise<RequestError> {
  try {
    return errorOf((await response.json()) as Status, response.status);
  } catch {
    return new RequestError(response.status, "", response.statusText);
  }
}

/** Returns the error of a Status. */
export function errorOf(s: Status, code = s.code ?? 500): RequestError {
  return new RequestError(code, s.reason ?? "", s.message ?? "", s.details?.retryAfterSeconds ?? 0);
}

/** Gets a path of the hub's API as JSON. */
export async function getJSON<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send("/api" + path, { signal })).json()) as T;
}

/** Gets a path of the hub's API as the text that it sends, for what must come back unchanged. */
export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return (await send("/api" + path, { signal })).text();
}

/** A request with a body, as the API takes it. */
export interface Write {
  method: "PATCH" | "POST" | "PUT";
  path: string;
  /** The body as JSON. */
  body: string;
}

/** Sends a write to the hub's API, and returns the answer. A patch is a merge patch. */
export async function sendWrite<T>(w: Write, signal?: AbortSignal): Promise<T> {
  return JSON.parse(await sendWriteText(w, signal)) as T;
}

/** Sends a write, and returns the text of the answer. */
export async function sendWriteText(w: Write, signal?: AbortSignal): Promise<string> {
  const type = w.method === "PATCH" ? "application/merge-patch+json" : "application/json";
  return (await send("/api" + w.path, { method: w.method, body: w.body, signal, headers: { "Content-Type": type } })).text();
}

/** Gets the table of reasons, which is the same for everybody. */
export async function getReasons<T>(): Promise<T> {
  return (await (await send("/reasons.json")).json()) as T;
}

/** What happens with a stream: it is open, and lines come. */
export interface StreamHandler {
  onOpen(): void;
  onLine(value: unknown): void;
}

/** So many bytes become one text. A part of a text, as a kept line, keeps the whole text in memory. */
const maxPiece = 16 << 10;

/** Reads a stream of text until it ends. The next chunk is read once what onChunk returns is done. */
export async function readText(path: string, signal: AbortSignal, onOpen: () => void, onChunk: (text: string) => void | Promise<void>): Promise<void> {
  const response = await send("/api" + path, { signal });
  onOpen();
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const pieces = done ? [decoder.decode()] : decodePieces(decoder, value);
      for (const piece of pieces) if (piece !== "") await onChunk(piece);
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function* decodePieces(decoder: TextDecoder, bytes: Uint8Array): Generator<string> {
  for (let at = 0; at < bytes.length; at += maxPiece) yield decoder.decode(bytes.subarray(at, at + maxPiece), { stream: true });
}

/** Reads a stream of JSON lines until it ends. A line that is longer than the bound ends it, too. */
export async function readLines(path: string, signal: AbortSignal, handler: StreamHandler): Promise<void> {
  const maxLine = 32 << 20;
  let parts: string[] = [];
  let length = 0;
  await readText(path, signal, () => handler.onOpen(), (value) => {
    let rest = value;
    for (let at = rest.indexOf("\n"); at >= 0; at = rest.indexOf("\n")) {
      parts.push(rest.slice(0, at));
      const line = parts.join("");
      if (line.trim() !== "") handler.onLine(JSON.parse(line));
      parts = [];
      length = 0;
      rest = rest.slice(at + 1);
    }
    parts.push(rest);
    length += rest.length;
    if (length > maxLine) throw new RequestError(0, "TooLong", "");
  });
}

/** Makes a person the one as which the page acts. */
export function actAs(p: Person): Person {
  session = p.session;
  return p;
}

/** Returns the person of the browser's session. The page does not yet act as this person. */
export async function getPerson(): Promise<Person> {
  return (await (await send("/session")).json()) as Person;
}

export async function signIn(token: string): Promise<Person> {
  return actAs((await (await send("/session", bodyOf("POST", { token }))).json()) as Person);
}

/** The person of a one-time code. */
export interface Offer {
  user: string;
  groups?: string[];
  /** Identifies the offer, so that the person agrees to exactly what the page shows. */
  offer: string;
}

function bodyOf(method: string, value: object): RequestInit {
  return { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) };
}

/** Uses a one-time code up, and returns its person. The session stays as it is. */
export async function offerSession(code: string): Promise<Offer> {
  return (await (await send("/session/code", bodyOf("POST", { code }))).json()) as Offer;
}

/** Signs in as the offered person. */
export async function agreeToOffer(offer: string): Promise<Person> {
  return actAs((await (await send("/session/code", bodyOf("PUT", { offer }))).json()) as Person);
}

/** Forgets an offer. */
export async function declineOffer(): Promise<void> {
  await send("/session/code", { method: "DELETE" });
}

/** Puts a new token into the session, and returns its person. */
export async function renewSession(): Promise<Person> {
  return (await (await send("/session/renewal", { method: "POST" })).json()) as Person;
}

/** Signs out, and returns where the session at the issuer can be ended, too. */
export async function signOut(): Promise<string> {
  const response = await send("/session", { method: "DELETE" });
  if (response.status === 204) return "";
  return ((await response.json()) as { issuerSignOut: string }).issuerSignOut;
}

/** The issuer at which people sign in. Without one, all is absent. */
export interface Issuer {
  host?: string;
  state?: "Ready" | "Unreachable" | "Checking";
  since?: string;
  message?: string;
  signIn?: string;
  /** The failure of this browser's last sign-in. */
  failure?: { kind: string; message: string };
}

export async function getIssuer(signal?: AbortSignal): Promise<Issuer> {
  return (await (await send("/oidc", { signal })).json()) as Issuer;
}
