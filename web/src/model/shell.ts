// Commands to copy into a shell.

/** Returns the command of words, each of which the shell takes as it is; nothing for words that cannot be shown. */
export function commandOf(...words: string[]): string | undefined {
  if (words.some((w) => w === "" || /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u.test(w))) return undefined;
  return words.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : "'" + w.replaceAll("'", "'\\''") + "'")).join(" ");
}

/** Returns a command about a Bundle, or a ClusterBundle. */
export function bundleCommand(command: readonly string[], o: { namespace?: string; name: string }, ...more: string[]): string | undefined {
  const where = o.namespace ? ["-n", o.namespace] : [];
  return commandOf("atoll", ...command, `${o.namespace ? "bundle" : "clusterbundle"}/${o.name}`, ...where, ...more);
}
