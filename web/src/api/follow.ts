// One way to follow the hub: attempts with pauses between them, until the signal ends.

import { Backoff, pause } from "./backoff";
import { RequestError } from "./client";
import { connection } from "./connection";

/** A stream that ends sooner than this, in milliseconds, counts as a failure. */
const shortest = 1000;

/** A hub that starts refuses what it will allow once its rights are read: what was shown stays for so long. */
const patience = 15_000;

/** How often a refusal is asked again: a hub that starts allows it then. Later, the next visit of the view asks. */
const repeats = 6;

/** Answers that another attempt does not change, unless rights or objects do. */
const refusals = new Set([400, 403, 404, 405, 422]);

export interface Followed {
  signal: AbortSignal;
  /** Reads until the stream ends, and calls onOpen once it is open. */
  attempt(onOpen: () => void): Promise<void>;
  /** The hub does not know the version any more: the next attempt begins from the start. */
  onExpired(): void;
  /** The person has no right, or the object is gone. */
  onRefused(error: RequestError): void;
}

export async function followStream(f: Followed): Promise<void> {
  const owner = {};
  const backoff = new Backoff();
  let lastOpen = 0;
  let refused = 0;
  while (!f.signal.aborted) {
    let retryAfter = 0;
    let opened = 0;
    try {
      await f.attempt(() => {
        opened = lastOpen = Date.now();
        refused = 0;
        connection.report(owner, true);
      });
    } catch (e) {
      if (f.signal.aborted) break;
      const error = e instanceof RequestError ? e : new RequestError(0, "Cut", String(e));
      if (error.code === 401) break;
      if (error.code === 410) f.onExpired();
      else if (refusals.has(error.code) && Date.now() - lastOpen > patience) {
        f.onRefused(error);
        connection.forget(owner);
        if (++refused > repeats) break;
      } else connection.report(owner, false);
      retryAfter = error.retryAfter;
    }
    if (opened > 0 && Date.now() - opened > shortest) {
      lastOpen = Date.now();
      backoff.reset();
    }
    await pause(backoff.next(retryAfter), f.signal);
  }
  connection.forget(owner);
}
