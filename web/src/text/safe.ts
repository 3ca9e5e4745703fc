// Text of users and members, made harmless to read. The page never makes markup of text; this is about
// characters that hide or reorder what is read.

const unsafe = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;
const longest = 4000;

function escapeCharacter(c: string): string {
  return "\\u" + c.codePointAt(0)!.toString(16).padStart(4, "0");
}

/** Shows control characters, separators of lines and characters that change the direction as escapes. */
export function safeText(text: unknown): string {
  const s = typeof text === "string" ? text : text === undefined || text === null ? "" : String(text);
  const cut = s.length > longest ? s.slice(0, longest) + "…" : s;
  return cut.replace(unsafe, escapeCharacter);
}

/** Shows a text of many lines, whose lines stay. Nothing is cut: the reader bounds it. */
export function safeBlock(text: string): string {
  return text.split("\n").map((line) => line.replace(unsafe, escapeCharacter)).join("\n");
}

/** Returns the link if it is absolute and http or https; else nothing. */
export function safeLink(text: string): string | undefined {
  try {
    const url = new URL(text);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** Colours of a terminal. They hide nothing, and are left out; all other sequences are shown as escapes. */
const terminalColours = /\u001b\[[0-9;:]{0,40}m/g;
const unsafeInLine = /(?!\t)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** Shows a line of a log, of so many characters at most and with the count of those that are left out. Tabs stay. */
export function safeLine(text: string, longestLine: number, alreadyCut = 0): string {
  const plain = (text.endsWith("\r") ? text.slice(0, -1) : text).replace(terminalColours, "");
  const escaped = plain.replace(unsafeInLine, escapeCharacter);
  const cut = alreadyCut + Math.max(0, escaped.length - longestLine);
  return cut > 0 ? escaped.slice(0, longestLine) + ` … (+${cut})` : escaped;
}
