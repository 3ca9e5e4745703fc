// Chooses the catalogue, and fills texts in.

import { en, type TextKey } from "./en";
import { zh } from "./zh";

export type { TextKey };
export type Language = "en" | "zh";

const catalogues: Record<Language, Partial<Record<TextKey, string>>> = { en, zh };
let language: Language = "en";

export function setLanguage(next: Language): void {
  language = next;
  if (typeof document !== "undefined") document.documentElement.lang = next;
}

export function currentLanguage(): Language {
  return language;
}

/** Returns the text of a key. A catalogue without it falls back to English. */
export function t(key: TextKey, parameters: Record<string, string | number> = {}): string {
  const text = catalogues[language][key] ?? en[key];
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in parameters ? String(parameters[name]) : whole));
}

/** Returns the text of a computed key, or what stands in its place when there is none. */
export function textOr(key: string, otherwise: string): string {
  return key in en ? t(key as TextKey) : otherwise;
}
