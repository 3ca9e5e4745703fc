// Lines of logs: bounded while they arrive, and made harmless before they are kept.

import { safeLine } from "../text/safe";

/** So many characters of a line are kept; the others are counted. */
export const maxLine = 16 << 10;

export interface RawLine {
  text: string;
  /** Characters that were left out at its end. */
  cut: number;
}

/** Splits a stream into lines. It never holds more of a line than is kept of it. */
export class LineSplitter {
  private parts: string[] = [];
  private length = 0;
  private cut = 0;

  /** Returns the lines that the chunk completes. */
  add(chunk: string): RawLine[] {
    const out: RawLine[] = [];
    let start = 0;
    for (let at = chunk.indexOf("\n"); at >= 0; at = chunk.indexOf("\n", start)) {
      this.keep(chunk.slice(start, at));
      out.push(this.take());
      start = at + 1;
    }
    this.keep(chunk.slice(start));
    return out;
  }

  /** Returns the line that no line break ended, if any. */
  end(): RawLine | undefined {
    return this.length + this.cut > 0 ? this.take() : undefined;
  }

  private keep(part: string): void {
    const kept = part.slice(0, maxLine - this.length);
    if (kept !== "") this.parts.push(kept);
    this.length += kept.length;
    this.cut += part.length - kept.length;
  }

  private take(): RawLine {
    const line = { text: this.parts.join(""), cut: this.cut };
    this.parts = [];
    this.length = this.cut = 0;
    return line;
  }
}

export interface ParsedLine {
  /** Milliseconds since 1970, with fractions; undefined: the line has no time. */
  at?: number;
  /** The time as the cluster wrote it. */
  stamp: string;
  /** The text, which holds no character that hides, reorders or controls what is read. */
  text: string;
}

const stampForm = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)(?: |$)/;

/** Parses a line that begins with its time, as the kubelet writes it. */
export function parseLine(raw: RawLine): ParsedLine {
  const found = stampForm.exec(raw.text);
  const seconds = found ? Date.parse(found[1]! + found[3]!) : NaN;
  const isTimed = found !== null && !Number.isNaN(seconds);
  const text = safeLine(isTimed ? raw.text.slice(found[0].length) : raw.text, maxLine, raw.cut);
  return isTimed ? { at: seconds + Number("0" + (found[2] ?? "")) * 1000, stamp: found[0].trimEnd(), text } : { stamp: "", text };
}
