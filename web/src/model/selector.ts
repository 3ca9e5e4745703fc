// Parameters that select objects.

/** Returns the parameter that selects by fields. */
export function fieldSelector(fields: Record<string, string>): string {
  const terms = Object.entries(fields).map(([name, value]) => name + "=" + value.replace(/[\\,=]/g, (c) => "\\" + c));
  return "fieldSelector=" + encodeURIComponent(terms.join(","));
}
