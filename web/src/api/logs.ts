// Follows the logs of containers in many clusters, each by a stream of its own, through all that breaks off.

import { Backoff, pause } from "./backoff";
import { RequestError, getJSON, readText } from "./client";
import { getTemplates } from "./tree";
import { LogBuffer } from "../model/logbuffer";
import { LineSplitter, parseLine } from "../model/logline";
import { type LogRange, type LogSource, type LogSubject, type Selecting, type Workload, hasLogs, logPath, maxSources, podSelector, workloadPath } from "../model/logsources";

/** Of an application, the pods of so many workloads are read. */
const maxWorkloads = 20;

/** Workloads whose pods are meant, and the count of those that are left out because there are too many. */
export interface FoundWorkloads {
  workloads: Workload[];
  left: number;
}

/** Finds the workloads whose pods are meant: one, or all of an application, each with the selector of its pods. */
export async function findWorkloads(of: LogSubject, signal: AbortSignal): Promise<FoundWorkloads> {
  if (of.kind === "Pod") return { workloads: [of], left: 0 };
  const all = of.kind === applicationKind ? await listWorkloads(of, signal) : [of];
  const own = all.slice(0, maxWorkloads);
  const found = await Promise.all(own.map(async (w): Promise<Workload> => ({ ...w, selector: await readSelector(w, signal) })));
  return { workloads: found.filter((w) => w.selector !== undefined), left: all.length - own.length };
}

/** The kind by which all workloads of an application are meant. */
export const applicationKind = "Bundle";

async function listWorkloads(of: LogSubject, signal: AbortSignal): Promise<LogSubject[]> {
  const templates = await getTemplates(of.namespace, of.name, signal);
  return templates.filter((x) => x.kind !== "Pod" && hasLogs(x.kind, x.group ?? "")).map((x) => ({ kind: x.kind, namespace: x.namespace || of.namespace, name: x.name }));
}

async function readSelector(w: LogSubject, signal: AbortSignal): Promise<string | undefined> {
  const path = workloadPath(w.kind, w.namespace, w.name);
  return path && podSelector(await getJSON<Selecting>(path, signal), w.kind);
}

/** How a source is: not begun, read, broken off and tried again, refused, or at its end. */
export type SourceState = "waiting" | "open" | "broken" | "refused" | "ended";

export interface FollowedSource {
  source: LogSource;
  state: SourceState;
  /** Why it is broken or refused. */
  message: string;
}

/** Between two merges, so many characters are read at most: what is not read stays in the cluster. */
const maxBetweenMerges = 4 << 20;
const mergePause = 150;

/** What a reader asks; tests have their own. */
export type ReadText = (path: string, signal: AbortSignal, onOpen: () => void, onChunk: (text: string) => void | Promise<void>) => Promise<void>;

/** Follows sources until it is stopped. */
export class LogFollower {
  readonly buffer = new LogBuffer();
  /** All sources so far, by the index that their lines have. */
  readonly followed: FollowedSource[] = [];
  /** Sources that are not read, because too many are. */
  left = 0;
  private readonly indexes = new Map<string, number>();
  private sources: readonly LogSource[] = [];
  private readonly present = new Map<string, LogSource>();
  private readonly active = new Set<string>();
  private readonly ended = new Map<string, string>();
  private readonly stopped = new AbortController();
  private readonly timer: ReturnType<typeof setInterval>;
  private readSince = 0;
  private release: () => void = () => undefined;
  private gate = Promise.resolve();
  private changed = false;

  constructor(private readonly range: LogRange, private readonly onChange: () => void, private readonly read: ReadText = readText) {
    this.timer = setInterval(() => this.publish(), mergePause);
  }

  /** Sets which sources there are now. Those that are new, or run again, are read. */
  setSources(sources: readonly LogSource[]): void {
    this.sources = sources;
    this.present.clear();
    this.left = 0;
    let taken = this.active.size;
    for (const s of sources) {
      const needsRoom = !this.active.has(s.key) && this.ended.get(s.key) !== s.run;
      if (needsRoom && taken >= maxSources) {
        this.left++;
        continue;
      }
      if (needsRoom) taken++;
      this.present.set(s.key, s);
      if (!this.indexes.has(s.key)) this.indexes.set(s.key, this.followed.push({ source: s, state: "waiting", message: "" }) - 1);
      this.followed[this.indexes.get(s.key)!]!.source = s;
    }
    for (const s of this.present.values()) this.start(s);
    this.changed = true;
  }

  stop(): void {
    this.stopped.abort();
    clearInterval(this.timer);
    this.release();
  }

  private start(s: LogSource): void {
    if (!s.started || this.active.has(s.key) || this.ended.get(s.key) === s.run || this.stopped.signal.aborted) return;
    this.active.add(s.key);
    void this.follow(s).finally(() => {
      this.active.delete(s.key);
      const now = this.present.get(s.key);
      if (now) this.start(now); // it may run again already
      if (this.left > 0 && !this.stopped.signal.aborted) this.setSources(this.sources); // there is room for another one
    });
  }

  /** Follows one run of a container to its end. */
  private async follow(s: LogSource): Promise<void> {
    const { signal } = this.stopped;
    const backoff = new Backoff();
    const index = this.indexes.get(s.key)!;
    const seen = { at: 0 };
    while (!signal.aborted) {
      let retryAfter = 0;
      try {
        const from = seen.at;
        await this.readOnce(s, index, seen);
        if (seen.at > from) backoff.reset();
        const now = this.present.get(s.key);
        if (!now?.running || now.run !== s.run) return this.finish(s, "ended");
        this.setState(index, "broken", "");
      } catch (e) {
        if (signal.aborted) return;
        const error = e instanceof RequestError ? e : new RequestError(0, "Cut", "");
        if (!isTemporary(error)) return this.finish(s, error.code === 404 ? "ended" : "refused", error.message);
        this.setState(index, "broken", error.message);
        retryAfter = error.retryAfter;
      }
      await pause(backoff.next(retryAfter), signal);
    }
  }

  private async readOnce(s: LogSource, index: number, seen: { at: number }): Promise<void> {
    const splitter = new LineSplitter();
    const from = seen.at;
    const take = (raw: { text: string; cut: number }) => {
      const line = parseLine(raw);
      if (from > 0 && line.at !== undefined && line.at <= from) return; // it was seen
      if (line.at !== undefined && line.at > seen.at) seen.at = line.at;
      this.buffer.add(index, line);
    };
    const onChunk = (text: string) => {
      for (const raw of splitter.add(text)) take(raw);
      this.readSince += text.length;
      if (this.readSince < maxBetweenMerges) return undefined;
      return this.waitForMerge();
    };
    await this.read(logPath(s, this.range, from), this.stopped.signal, () => this.setState(index, "open", ""), onChunk);
    const last = splitter.end();
    if (last) take(last);
  }

  private waitForMerge(): Promise<void> {
    if (this.readSince < maxBetweenMerges * 2) this.gate = new Promise((resolve) => (this.release = resolve));
    this.readSince = maxBetweenMerges * 2;
    return this.gate;
  }

  private publish(): void {
    this.readSince = 0;
    this.release();
    const came = this.buffer.merge();
    if (!came && !this.changed) return;
    this.changed = false;
    this.onChange();
  }

  private finish(s: LogSource, state: SourceState, message = ""): void {
    this.ended.set(s.key, s.run);
    this.setState(this.indexes.get(s.key)!, state, message);
  }

  private setState(index: number, state: SourceState, message: string): void {
    Object.assign(this.followed[index]!, { state, message });
    this.changed = true;
  }
}

/** Reports whether an error may pass by itself: the cluster, or the hub, is not there now. */
function isTemporary(e: RequestError): boolean {
  return e.code === 0 || e.code === 408 || e.code === 429 || e.code >= 500;
}
