// Hooks: live collections, the clock, the route.

import { useEffect, useMemo, useReducer, useState } from "preact/hooks";
import { type Collection, type CollectionState, collectionOf } from "../api/collection";
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

/** Sets one parameter of the address, without an entry in the history. */
export function setQuery(name: string, value: string): void {
  const query = new URLSearchParams(location.search);
  if (value === "") query.delete(name);
  else query.set(name, value);
  const text = query.toString();
  navigate(location.pathname + (text ? "?" + text : ""), true);
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
