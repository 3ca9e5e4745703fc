// One request of a view.

import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";
import { RequestError } from "../api/client";

/** A request that a person starts, and its last answer. */
export interface Asked<T> {
  answer?: T;
  refusal?: RequestError;
  busy: boolean;
  ask: () => void;
}

/** Returns a request that starts when ask is called. Another key, and the end of the view, abort it. */
export function useRequest<T>(key: string, request: (signal: AbortSignal) => Promise<T>): Asked<T> {
  const [state, setState] = useState<Omit<Asked<T>, "ask">>({ busy: false });
  const running = useRef<AbortController | undefined>(undefined);
  useLayoutEffect(() => { // before the next click: a later effect would end the request that it starts
    setState({ busy: false });
    return () => running.current?.abort();
  }, [key]);
  const ask = useCallback(() => {
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    setState((before) => ({ ...before, busy: true }));
    request(own.signal).then(
      (answer) => !own.signal.aborted && setState({ answer, busy: false }),
      (e) => !own.signal.aborted && setState({ refusal: e instanceof RequestError ? e : new RequestError(0, "Unreadable", String(e)), busy: false }),
    );
  }, [key]);
  return { ...state, ask };
}
