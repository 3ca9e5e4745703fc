// The one-time code in the fragment of a link. Browsers send no fragment, so no log has it.

/** Returns the code of a fragment; "": it has none. */
export function codeOf(fragment: string): string {
  return /^#code=([\w-]{1,256})$/.exec(fragment)?.[1] ?? "";
}
