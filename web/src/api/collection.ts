// A live collection: one list in pages, then a watch with bookmarks. It is shared by all that use it, and
// stops with the last of them.

import { type RequestError, errorOf, getJSON, readLines, type StreamHandler } from "./client";
import { followStream } from "./follow";
import type { KubeObject, List, Status } from "./kubernetes";

const pageSize = 500;

/** How a collection is: read at all, live now, or refused for good. */
export interface CollectionState<T> {
  items: readonly T[];
  /** The first list is complete. */
  loaded: boolean;
  /** Why the list is refused: the person has no right, or the kind is not served. */
  refusal?: RequestError;
}

interface WatchLine {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: KubeObject & Status;
}

/** What a collection reads of the hub; tests have their own. */
export interface Transport {
  getJSON<T>(path: string, signal: AbortSignal): Promise<T>;
  readLines(path: string, signal: AbortSignal, handler: StreamHandler): Promise<void>;
}

export class Collection<T extends KubeObject> {
  private byKey = new Map<string, T>();
  private state: CollectionState<T> = { items: [], loaded: false };
  private readonly listeners = new Set<() => void>();
  private stop?: AbortController;
  private version = "";
  private scheduled = false;

  constructor(readonly path: string, private readonly selector: string, private readonly transport: Transport = { getJSON, readLines }) {}

  get current(): CollectionState<T> {
    return this.state;
  }

  /** Follows the collection until the returned function is called. */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    if (!this.stop) {
      this.stop = new AbortController();
      void this.run(this.stop.signal);
    }
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) {
        this.stop?.abort();
        this.stop = undefined;
      }
    };
  }

  private run(signal: AbortSignal): Promise<void> {
    return followStream({
      signal,
      attempt: async (onOpen) => {
        if (this.version === "") await this.list(signal);
        await this.watch(signal, onOpen);
      },
      onExpired: () => (this.version = ""),
      onRefused: (refusal) => {
        this.byKey.clear();
        this.version = "";
        this.publish({ items: [], loaded: true, refusal });
      },
    });
  }

  private query(parameters: Record<string, string>): string {
    const q = new URLSearchParams(this.selector);
    for (const [name, value] of Object.entries(parameters)) q.set(name, value);
    return this.path + "?" + q.toString();
  }

  private async list(signal: AbortSignal): Promise<void> {
    const found = new Map<string, T>();
    let next = "";
    do {
      const parameters: Record<string, string> = { limit: String(pageSize) };
      if (next !== "") parameters["continue"] = next;
      const page = await this.transport.getJSON<List<T>>(this.query(parameters), signal);
      for (const item of page.items ?? []) found.set(keyOf(item), item);
      next = page.metadata.continue ?? "";
      this.version = page.metadata.resourceVersion ?? "";
      if (next !== "" && !this.state.loaded) this.publish({ items: [...found.values()], loaded: false });
    } while (next !== "");
    this.byKey = found;
    this.publish({ items: [...found.values()], loaded: true });
  }

  private async watch(signal: AbortSignal, onOpen: () => void): Promise<void> {
    const path = this.query({ watch: "true", allowWatchBookmarks: "true", resourceVersion: this.version });
    const onLine = (value: unknown) => {
      const line = value as WatchLine;
      if (line.type === "ERROR") throw errorOf(line.object);
      this.version = line.object.metadata.resourceVersion ?? this.version;
      if (line.type === "BOOKMARK") return;
      const item = line.object as unknown as T;
      if (line.type === "DELETED") this.byKey.delete(keyOf(item));
      else this.byKey.set(keyOf(item), item);
      this.schedule();
    };
    await this.transport.readLines(path, signal, { onOpen, onLine });
  }

  /** Publishes once for all events of one moment. */
  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      this.publish({ items: [...this.byKey.values()], loaded: true });
    }, 50);
  }

  private publish(state: CollectionState<T>): void {
    this.state = state;
    for (const listener of this.listeners) listener();
  }
}

export function keyOf(o: KubeObject): string {
  return (o.metadata.namespace ?? "") + "/" + o.metadata.name;
}

const shared = new Map<string, Collection<KubeObject>>();

/** Returns the one collection of a path and a selector, such as "labelSelector=a%3Db". */
export function collectionOf<T extends KubeObject>(path: string, selector = ""): Collection<T> {
  const key = path + "?" + selector;
  let found = shared.get(key);
  if (!found) {
    found = new Collection<KubeObject>(path, selector);
    shared.set(key, found);
  }
  return found as unknown as Collection<T>;
}

/** Forgets all collections, as another person signs in. */
export function forgetCollections(): void {
  shared.clear();
}
