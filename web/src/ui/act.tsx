// Buttons that change something: each knows the right that it needs, and shows what it does before it does it.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Right } from "../api/kubernetes";
import { rights } from "../api/rights";
import { describeError } from "../text/problem";
import { safeText } from "../text/safe";
import { t } from "../text/text";
import { Command, Link, Text } from "./parts";

/** Returns the first right that the person lacks; undefined while it is asked for, and when there is none. */
export function useMissingRight(needed: readonly Right[]): Right | undefined {
  const key = JSON.stringify(needed);
  const [missing, setMissing] = useState<{ key: string; right?: Right }>({ key: "" });
  useEffect(() => {
    let over = false;
    void (async () => {
      for (const right of needed) {
        const { allowed } = await rights.check(right);
        if (over) return;
        if (!allowed) return setMissing({ key, right });
      }
      setMissing({ key });
    })();
    return () => void (over = true);
  }, [key]);
  return missing.key === key ? missing.right : undefined;
}

/** Names a right as the API's refusals do. */
export function describeRight(r: Right): string {
  const resource = r.resource + (r.subresource ? "/" + r.subresource : "") + (r.group ? "." + r.group : "");
  const key = r.namespace ? "act.missing.namespace" : "act.missing";
  return t(key, { verb: r.verb, resource, namespace: safeText(r.namespace) });
}

/** A link. Without a right it is no link, and names the right. */
export function RightLink({ needs, to, class: className, text }: { needs: readonly Right[]; to: string; class: string; text: string }) {
  const missing = useMissingRight(needs);
  if (missing) return <button type="button" class="ghost small" disabled title={describeRight(missing)}>{text}</button>;
  return <Link to={to} class={"ghost small " + className}>{text}</Link>;
}

interface ActProps {
  label: string;
  needs: readonly Right[];
  command?: string;
  /** It is open at first, and has the focus. */
  opened?: boolean;
  children: ComponentChildren;
}

/** A button that opens what it is about. Without the right it is disabled and says why. */
export function Act({ label, needs, command, opened, children }: ActProps) {
  const missing = useMissingRight(needs);
  const [open, setOpen] = useState(!!opened);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (opened) button.current?.focus();
  }, []);
  const id = useId();
  return (
    <div class="act">
      <span class="act-head">
        <button ref={button} type="button" class="action" disabled={!!missing} aria-expanded={open && !missing} aria-describedby={missing ? id : undefined} onClick={() => setOpen(!open)}>{label}</button>
        {missing && <span class="muted small" id={id}>{describeRight(missing)}</span>}
      </span>
      {open && !missing && <div class="act-body" onKeyDown={(e) => e.key === "Escape" && setOpen(false)}>{children}</div>}
      {command && <Command text={command} />}
    </div>
  );
}

/** The button that does it. What it did, or why it failed, is announced. */
export function Do({ label, run, disabled, hint }: { label: string; run: () => Promise<unknown>; disabled?: boolean; hint?: string }) {
  const [state, setState] = useState<"idle" | "busy" | "done" | { problem: string }>("idle");
  const start = () => {
    setState("busy");
    run().then(() => setState("done"), (e) => setState({ problem: describeError(e) }));
  };
  return (
    <span class="do">
      <button type="button" class="primary" disabled={disabled || state === "busy"} title={hint} onClick={start}>{label}</button>
      <span role="status" class={typeof state === "object" ? "problem" : "muted small"}>
        {state === "busy" ? t("act.busy") : state === "done" ? t("act.done") : typeof state === "object" ? <Text>{state.problem}</Text> : ""}
      </span>
    </span>
  );
}
