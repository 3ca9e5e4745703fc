// Text of users and members, made harmless to read. The page never makes markup of text; this is about
// characters that hide or reorder what is read.

const unsafe = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;
const longest = 4000;

/** Shows control characters, separators of lines and characters that change the direction as escapes. */
export function safeText(text: unknown): string {
  const s = typeof text === "string" ? text : text === undefined || text === null ? "" : String(text);
  const cut = s.length > longest ? s.slice(0, longest) + "…" : s;
  return cut.replace(unsafe, (c) => "\\u" + c.codePointAt(0)!.toString(16).padStart(4, "0"));
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
