// Filters: words that must be found, and field:value pairs. A minus before a term excludes.

/** What a row offers to filters: its words, and its fields with their values. */
export interface Searchable {
  words: string[];
  fields: Record<string, string[]>;
}

interface Term {
  exclude: boolean;
  field?: string;
  value: string;
}

export function parseFilter(text: string): Term[] {
  return (text.match(/-?(?:[^\s"]|"[^"]*")+/g) ?? []).slice(0, 20).map((raw) => {
    const exclude = raw.startsWith("-") && raw.length > 1;
    const term = (exclude ? raw.slice(1) : raw).toLowerCase();
    const colon = term.indexOf(":");
    const value = (colon > 0 ? term.slice(colon + 1) : term).replaceAll('"', "");
    return colon > 0 ? { exclude, field: term.slice(0, colon), value } : { exclude, value };
  });
}

/** Reports whether a row has all terms. Values of one field are alternatives: a comma separates them. */
export function matchesFilter(terms: Term[], row: Searchable): boolean {
  return terms.every((term) => {
    const values = term.field === undefined ? row.words : (row.fields[term.field] ?? []);
    const wanted = term.field === undefined ? [term.value] : term.value.split(",");
    const found = values.some((v) => wanted.some((w) => (term.field === undefined ? v.toLowerCase().includes(w) : matchesValue(v.toLowerCase(), w))));
    return found !== term.exclude;
  });
}

function matchesValue(value: string, wanted: string): boolean {
  return wanted.endsWith("*") ? value.startsWith(wanted.slice(0, -1)) : value === wanted || value.startsWith(wanted + "=");
}
