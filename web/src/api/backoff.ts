// Pauses between attempts to reach the hub.

const first = 500;
const longest = 30_000;

/** Grows from half a second to half a minute. Half of each pause is random, so that pages spread themselves. */
export class Backoff {
  private failures = 0;

  constructor(private readonly random: () => number = Math.random) {}

  reset(): void {
    this.failures = 0;
  }

  /** Returns the next pause in milliseconds, at least so many seconds as the hub asks for. */
  next(retryAfter = 0): number {
    const full = Math.min(first * 2 ** this.failures, longest);
    this.failures = Math.min(this.failures + 1, 10);
    return Math.max(full / 2 + (full / 2) * this.random(), retryAfter * 1000);
  }
}

/** Waits, and returns early when the signal ends or the browser is online again. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      globalThis.removeEventListener?.("online", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", done);
    globalThis.addEventListener?.("online", done);
  });
}
