// Times, relative and absolute.

/** Returns the time between two moments in its largest unit, such as "3m". */
export function formatAge(since: string | undefined, now: number): string {
  const at = since ? Date.parse(since) : NaN;
  if (Number.isNaN(at)) return "";
  const s = Math.max(0, Math.floor((now - at) / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86400)}d`;
}

/** Returns a time in whole seconds, as the API states times. */
export function formatSeconds(at: Date): string {
  return at.toISOString().replace(/\.\d+Z$/, "Z");
}

export function formatAbsolute(time: string | undefined): string {
  const at = time ? Date.parse(time) : NaN;
  return Number.isNaN(at) ? "" : new Date(at).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

/** Returns the time of a day with milliseconds, in the zone of the browser; nothing without a time. */
export function formatClock(milliseconds: number | undefined): string {
  if (milliseconds === undefined) return "";
  const at = new Date(milliseconds);
  const digits = (n: number, width = 2) => String(n).padStart(width, "0");
  return `${digits(at.getHours())}:${digits(at.getMinutes())}:${digits(at.getSeconds())}.${digits(at.getMilliseconds(), 3)}`;
}
