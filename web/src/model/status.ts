// The few ways in which anything can be, with their icons and colours.

export type Tone = "good" | "busy" | "warn" | "bad" | "away" | "wait" | "none";

const tones: Record<string, Tone> = {
  Ready: "good", Healthy: "good", Running: "good", Succeeded: "good", Complete: "good",
  Progressing: "busy", Applying: "busy", Pending: "busy", Removing: "busy", Deleting: "busy", Terminating: "busy",
  Degraded: "warn", NotReady: "warn", Missing: "warn", Drifted: "warn",
  Failed: "bad", CrashLoopBackOff: "bad", ImagePullBackOff: "bad", ErrImagePull: "bad", Error: "bad",
  Away: "away", Suspended: "away", Nowhere: "away",
  Waiting: "wait", Joining: "wait",
};

export function toneOf(state: string): Tone {
  return tones[state] ?? "none";
}

/** Actors that are people: what waits for them does not go on by itself. */
const machines = new Set(["", "none", "Atoll", "the agent"]);

export function isPerson(actor: string): boolean {
  return !machines.has(actor);
}
