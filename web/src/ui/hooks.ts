// Hooks: live collections, the clock, the route.

import { useEffect, useMemo, useReducer, useState } from "preact/hooks";
import { type Collection, type CollectionState, collectionOf } from "../api/collection";
import type { Followed } from "../api/fleet";
import type { KubeObject } from "../api/kubernetes";
import { type TreeState, followTree } from "../api/tree";

const idle = { items: [], loaded: false };

/** Follows a collection while the component is shown. Without a path, nothing is read. */
export function useCollection<T extends KubeObject>(path: string | undefined, selector = ""): CollectionState<T> {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const collection: Collection<T> | undefined = useMemo(() => (path === undefined ? undefined : collectionOf<T>(path, selector)), [path, selector]);
  useEffect(() => collection?.subscribe(() => redraw(undefined as never)), [collection]);
  return collection?.current ?? idle;
}

export function useTree(namespace: string, name: string): TreeState {
  const [state, setState] = useState<TreeState>({});
  useEffect(() => {
    setState({});
    return followTree(namespace, name, setState);
  }, [namespace, name]);
  return state;
}

/**
 * Follows a stream while the component is shown; another key begins another stream. What one has sent stays until the next one has
 * sent something, and is pending so long. Without a key, nothing is read.
 */
export function useFollowed<S>(key: string | undefined, follow: (onChange: (f: Followed<S>) => void) => () => void): Followed<S> & { pending: boolean } {
  const [state, setState] = useState<Followed<S> & { key?: string }>({});
  useEffect(() => (key === undefined ? undefined : follow((f) => setState({ ...f, key }))), [key]);
  if (key === undefined) return { pending: false };
  return state.key === key ? { ...state, pending: false } : { value: state.value, pending: true };
}

/** Returns a value once it has been the same for so many milliseconds. */
export function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (value === settled) return undefined;
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, settled, milliseconds]);
  return settled;
}

let now = Date.now();
const clockListeners = new Set<() => void>();
setInterval(() => {
  if (document.hidden) return;
  now = Date.now();
  for (const l of clockListeners) l();
}, 1000);

/** Returns the time, and draws again each so many seconds. */
export function useNow(seconds = 5): number {
  const [at, setAt] = useState(now);
  useEffect(() => {
    const listener = () => setAt((before) => (now - before >= seconds * 1000 ? now : before));
    clockListeners.add(listener);
    return () => void clockListeners.delete(listener);
  }, [seconds]);
  return at;
}

export interface Route {
  path: string[];
  query: URLSearchParams;
}

const root = "/console/";
const routeListeners = new Set<() => void>();

export function readRoute(): Route {
  const path = location.pathname.slice(root.length).split("/").filter(Boolean).map(decodePart);
  return { path, query: new URLSearchParams(location.search) };
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Returns the address of a view. */
export function linkTo(...path: string[]): string {
  return root + path.map(encodeURIComponent).join("/");
}

export function navigate(address: string, replace = false): void {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  for (const l of routeListeners) l();
}

/** Returns the address of the present view with other parameters. */
export function addressWith(query: URLSearchParams): string {
  const text = query.toString();
  return location.pathname + (text ? "?" + text : "");
}

/** Sets one parameter of the address, without an entry in the history. */
export function setQuery(name: string, value: string): void {
  const query = new URLSearchParams(location.search);
  if (value === "") query.delete(name);
  else query.set(name, value);
  navigate(addressWith(query), true);
}

addEventListener("popstate", () => {
  for (const l of routeListeners) l();
});

export function useRoute(): Route {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const listener = () => redraw(undefined as never);
    routeListeners.add(listener);
    return () => void routeListeners.delete(listener);
  }, []);
  return readRoute();
}
