// The lines of several logs in the order of their times, as many as are kept.

import type { ParsedLine } from "./logline";

/** So many lines are kept, and so many characters of them; the oldest lines go first. */
export const maxLines = 10_000;
export const maxCharacters = 20_000_000;

export interface LogLine {
  id: number;
  /** The index of its source. */
  source: number;
  /** Orders the lines: its time, or that of the line before it in the same log. */
  at: number;
  stamp: string;
  text: string;
}

export interface LogBounds {
  lines: number;
  characters: number;
}

/** Keeps the newest lines. Lines of one log stay in their order, those of different logs are ordered by their times. */
export class LogBuffer {
  private kept: readonly LogLine[] = [];
  private characters = 0;
  private pending: LogLine[] = [];
  private pendingCharacters = 0;
  private readonly lastOf = new Map<number, number>();
  private count = 0;
  /** Lines that were dropped. */
  dropped = 0;

  constructor(private readonly bounds: LogBounds = { lines: maxLines, characters: maxCharacters }) {}

  /** The lines; each merge makes another array, so that one can be held still. */
  get lines(): readonly LogLine[] {
    return this.kept;
  }

  add(source: number, line: ParsedLine): void {
    const at = Math.max(line.at ?? 0, this.lastOf.get(source) ?? 0);
    this.lastOf.set(source, at);
    this.pending.push({ id: this.count++, source, at, stamp: line.stamp, text: line.text });
    this.pendingCharacters += line.text.length;
    if (this.pending.length > this.bounds.lines || this.pendingCharacters > this.bounds.characters) this.merge();
  }

  /** Merges what has come; reports whether anything has. */
  merge(): boolean {
    if (this.pending.length === 0) return false;
    const come = this.pending.sort(order);
    const merged: LogLine[] = [];
    let i = 0;
    for (const line of come) {
      while (i < this.kept.length && order(this.kept[i]!, line) <= 0) merged.push(this.kept[i++]!);
      merged.push(line);
    }
    for (; i < this.kept.length; i++) merged.push(this.kept[i]!);
    this.characters += this.pendingCharacters;
    this.pending = [];
    this.pendingCharacters = 0;
    let from = Math.max(0, merged.length - this.bounds.lines);
    for (let j = 0; j < from; j++) this.characters -= merged[j]!.text.length;
    while (this.characters > this.bounds.characters && from < merged.length) this.characters -= merged[from++]!.text.length;
    this.dropped += from;
    this.kept = from === 0 ? merged : merged.slice(from);
    return true;
  }
}

function order(a: LogLine, b: LogLine): number {
  return a.at - b.at || a.id - b.id;
}

/** Returns the lines of shown sources that contain the text, whatever its case. */
export function findLines(lines: readonly LogLine[], text: string, hidden: ReadonlySet<number>): readonly LogLine[] {
  const wanted = text.toLowerCase();
  if (wanted === "" && hidden.size === 0) return lines;
  return lines.filter((l) => !hidden.has(l.source) && (wanted === "" || l.text.toLowerCase().includes(wanted)));
}

/** Splits a text at the places where another one occurs, whatever its case: every second part is such a place. */
export function splitMatches(text: string, wanted: string): string[] {
  const [lower, search] = [text.toLowerCase(), wanted.toLowerCase()];
  if (search === "" || lower.length !== text.length) return [text]; // a case that has another length
  const out: string[] = [];
  let start = 0;
  for (let at = lower.indexOf(search); at >= 0 && out.length < 200; at = lower.indexOf(search, start)) {
    out.push(text.slice(start, at), text.slice(at, at + search.length));
    start = at + search.length;
  }
  return [...out, text.slice(start)];
}
