// Small parts that all views share.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { RequestError } from "../api/client";
import { formatAbsolute, formatAge } from "../model/time";
import { type Tone, toneOf } from "../model/status";
import { safeText } from "../text/safe";
import { t, textOr } from "../text/text";
import { Icon, Logo } from "./icons";
import { navigate, useNow } from "./hooks";
import { actorOf, sentenceOf } from "./reasons";

/** Text of users or members. */
export function Text({ children }: { children: string | undefined }) {
  return <bdi>{safeText(children)}</bdi>;
}

/** The name of the console, on pages without navigation. */
export function Brand() {
  return (
    <div class="brand">
      <Logo />
      <span>{t("app.title")}</span>
    </div>
  );
}

export function StatusMark({ state, text, tone = toneOf(state) }: { state: string; text?: string; tone?: Tone }) {
  return (
    <span class={"status tone-" + tone}>
      <Icon name={tone} />
      <Text>{text ?? textOr("state." + state, state)}</Text>
    </span>
  );
}

/** A reason in the engine's own words, with what it means and its actor on hover. */
export function Reason({ reason, message }: { reason: string; message?: string }) {
  if (!reason && !message) return null;
  const sentence = sentenceOf(reason);
  const actor = actorOf(reason);
  const title = [sentence, actor && actor !== "none" ? "→ " + textOr("actor." + actor, actor) : "", message ? safeText(message) : ""].filter(Boolean).join("\n");
  return (
    <span class="reason" title={title}>
      <Text>{reason}</Text>
    </span>
  );
}

/** A time, relative; absolute on hover. */
export function Since({ time }: { time: string | undefined }) {
  const now = useNow();
  const age = formatAge(time, now);
  return age ? (
    <time dateTime={time} title={formatAbsolute(time)}>
      {age}
    </time>
  ) : null;
}

interface LinkProps {
  to: string;
  children: ComponentChildren;
  class?: string;
  /** What a screen reader reads in place of the content. */
  label?: string;
  /** The key of a cell among which arrow keys move, of which one is a stop of the Tab key. */
  cell?: string;
  stop?: boolean;
}

export function Link({ to, children, class: className, label, cell, stop }: LinkProps) {
  const follow = (e: MouseEvent) => {
    if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    navigate(to);
  };
  return (
    <a href={to} class={className} aria-label={label} title={label} data-cell={cell} tabIndex={cell === undefined || stop ? undefined : -1} onClick={follow}>
      {children}
    </a>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <div class="command">
      <code>{safeText(text)}</code>
      <button type="button" class="ghost" onClick={copy} aria-label={t("copy")} title={t("copy")}>
        {copied ? t("copied") : <Icon name="copy" />}
      </button>
    </div>
  );
}

export function Empty({ title, hint, command, children }: { title: string; hint?: string; command?: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {hint && <p class="muted">{hint}</p>}
      {command && <Command text={command} />}
      {children}
    </div>
  );
}

export function Refusal({ error, title, children }: { error: RequestError; title?: string; children?: ComponentChildren }) {
  return (
    <Empty title={title ?? t(error.code === 404 ? "error.notFound" : "error.forbidden")}>
      <p class="muted small">
        <Text>{error.message}</Text>
      </p>
      {children}
    </Empty>
  );
}

/** A bar of parts, each with its tone and count. */
export function Parts({ parts, total }: { parts: { tone: Tone | "rest"; n: number; label: string }[]; total: number }) {
  const shown = parts.filter((p) => p.n > 0);
  const title = shown.map((p) => `${p.n} ${p.label}`).join(", ");
  const named = title === "" ? ({ "aria-hidden": true } as const) : ({ role: "img", "aria-label": title } as const);
  return (
    <svg class="parts" viewBox="0 0 100 6" preserveAspectRatio="none" {...named}>
      {title !== "" && <title>{title}</title>}
      <rect class="fill-track" width="100" height="6" rx="0" />
      {shown.map((p, i) => {
        const before = shown.slice(0, i).reduce((n, q) => n + q.n, 0);
        return <rect key={p.label} class={"fill-" + p.tone} x={(before / Math.max(total, 1)) * 100} width={(p.n / Math.max(total, 1)) * 100} height="6" />;
      })}
    </svg>
  );
}

/** How much of something is in use. */
export function Meter({ used, of, text, spoken }: { used: number; of: number; text: string; spoken?: boolean }) {
  const part = of > 0 ? Math.min(used / of, 1) : 0;
  const tone: Tone = part > 0.9 ? "warn" : "busy";
  return (
    <span class="meter" title={text}>
      <Parts parts={[{ tone, n: Math.round(part * 100), label: "%" }]} total={100} />
      <span class="meter-text">{spoken ? text : `${Math.round(part * 100)}%`}</span>
    </span>
  );
}

/** The filter of a view. It lives in the address. */
export function FilterBox({ value, onChange, shown, all }: { value: string; onChange: (v: string) => void; shown: number; all: number }) {
  return (
    <div class="filter">
      <Icon name="search" />
      <input
        id="filter" type="search" value={value} placeholder={t("filter.placeholder")} aria-label={t("filter.label")} spellcheck={false} autocomplete="off" maxLength={500}
        onInput={(e) => onChange(e.currentTarget.value)}
      />
      <kbd>/</kbd>
      <span class="muted small count">{value ? t("filter.shown", { shown, all }) : all}</span>
    </div>
  );
}

/** Pills that count rows by status; one that is pressed narrows the view to it. */
export function Pills({ counts, selected, onSelect, prefix }: { counts: [string, number][]; selected: string; onSelect: (s: string) => void; prefix: string }) {
  return (
    <div class="pills" role="group">
      {counts.filter(([status, n]) => n > 0 || status === selected).map(([status, n]) => (
        <button key={status} type="button" class={"pill tone-" + toneOf(status)} aria-pressed={selected === status} onClick={() => onSelect(selected === status ? "" : status)}>
          <Icon name={toneOf(status)} />
          <strong>{n}</strong>
          <span>{textOr(prefix + status, status)}</span>
        </button>
      ))}
    </div>
  );
}
