// The text of an object that a person edits, and the merge patch of what the person changed.

import { Document, Scalar, parseAllDocuments, parseDocument, visit } from "yaml";

export type Fields = Record<string, unknown>;

/** A draft: the patch of what changed, undefined where nothing did; or what is wrong with the text. */
export interface Draft {
  patch?: Fields;
  problem?: "syntax" | "many" | "identity" | "large" | "deep" | "value";
  detail?: string;
}

const maxText = 1 << 20;

/** So many levels may nest. The library recurses, and a browser whose stack it exhausts ends the page. */
const maxDepth = 200;

/** Metadata that the API server and controllers set, which no person edits. */
const serverFields = ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "ownerReferences", "finalizers"];
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration";

export function isFields(v: unknown): v is Fields {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** Returns what a person edits of an object. */
export function editableObject(o: Fields): Fields {
  const { status: _, ...out } = o;
  const metadata = Object.fromEntries(Object.entries(isFields(o["metadata"]) ? o["metadata"] : {}).filter(([key]) => !serverFields.includes(key)));
  if (isFields(metadata["annotations"])) {
    const kept = Object.entries(metadata["annotations"]).filter(([key]) => key !== lastApplied);
    if (kept.length > 0) metadata["annotations"] = Object.fromEntries(kept);
    else delete metadata["annotations"];
  }
  return { ...out, metadata };
}

/** Characters that hide or reorder what is read; lines and tabs stay. */
const unsafe = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u;
const unsafeInText = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

function escapeInQuotes(c: string): string {
  if (c === "\n" || c === "\t") return c;
  const code = c.codePointAt(0)!;
  return code > 0xffff ? "\\U" + code.toString(16).padStart(8, "0") : "\\u" + code.toString(16).padStart(4, "0");
}

/** Returns the YAML of a document. A text with unsafe characters is quoted, and they are written as escapes. */
function formatDocument(doc: Document): string {
  visit(doc, {
    Scalar(_, node) {
      if (typeof node.value === "string" && unsafe.test(node.value.replace(/[\n\t]/g, ""))) node.type = Scalar.QUOTE_DOUBLE;
    },
  });
  return doc.toString({ lineWidth: 0 }).replace(unsafeInText, escapeInQuotes);
}

export function formatObject(o: Fields): string {
  return formatDocument(new Document(o, { aliasDuplicateObjects: false }));
}

/** Returns the text with another value of a field; the same text where it has no such place. */
export function setField(text: string, path: readonly (string | number)[], value: unknown): string {
  const doc = parseDocument(text);
  if (doc.errors.length > 0) return text;
  try {
    if (value === undefined) doc.deleteIn(path);
    else doc.setIn(path, value);
  } catch {
    return text; // the way to the field is an alias
  }
  return formatDocument(doc);
}

/** Returns the value of a field; undefined where there is none. */
export function getField(value: unknown, path: readonly (string | number)[]): unknown {
  let at = value;
  for (const key of path) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as Record<string | number, unknown>)[key];
  }
  return at;
}

/** Reports whether a value nests deeper than can be edited. */
export function isDeep(value: unknown, levels = maxDepth): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((v) => isDeep(v, levels - 1));
}

/** Reports whether a text may nest too deep for the library: by its brackets, or by the columns before its lines. */
function isDeepText(text: string): boolean {
  let [open, columns, isStart] = [0, 0, true];
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    const isIndent = c === " " || c === "\t" || ("-?:".includes(c) && /\s/.test(text[i + 1] ?? ""));
    if (c === "\n") [columns, isStart] = [0, true];
    else if (isStart && isIndent) columns++;
    else isStart = false;
    if (c === "[" || c === "{") open++;
    else if (c === "]" || c === "}") open = Math.max(0, open - 1);
    if (open > maxDepth || columns > 2 * maxDepth) return true;
  }
  return false;
}

/** The value of a text, or what is wrong with it. */
export interface Reading {
  value?: unknown;
  problem?: Draft["problem"];
  detail?: string;
}

/** Reads the only document of a text. A large one takes seconds: read each text once. */
export function readText(text: string): Reading {
  if (text.length > maxText) return { problem: "large" };
  if (isDeepText(text)) return { problem: "deep" };
  const docs = parseAllDocuments(text);
  const doc = docs[0];
  if (docs.length !== 1 || !doc || !("errors" in doc)) return { problem: "many" };
  if (doc.errors.length > 0) return { problem: "syntax", detail: doc.errors[0]!.message };
  try {
    return { value: doc.toJS({ maxAliasCount: 100 }) };
  } catch (e) {
    return { problem: "syntax", detail: String(e) };
  }
}

/** Returns the text after the object was read again: its own, but for what a person wrote while another text was applied. */
export function textAfterRead(now: string, applied: string | undefined, read: string): string {
  return applied !== undefined && now !== applied ? now : read;
}

/** Returns the draft of an object that a text is. Its identity stays. */
export function draftOf({ value, problem, detail }: Reading, before: Fields): Draft {
  if (problem) return { problem, detail };
  if (!isFields(value) || !isFields(value["metadata"])) return { problem: "identity" };
  const old = editableObject(before);
  const [was, is] = [old["metadata"] as Fields, value["metadata"]];
  if (value["apiVersion"] !== old["apiVersion"] || value["kind"] !== old["kind"] || was["name"] !== is["name"] || was["namespace"] !== is["namespace"]) return { problem: "identity" };
  const added = Object.keys(is).find((key) => serverFields.includes(key)) ?? ("status" in value ? "status" : undefined);
  if (added) return { problem: "identity", detail: added };
  // A whole map that goes would take along what the text does not show of it.
  const metadata = isFields(was["annotations"]) ? { ...is, annotations: is["annotations"] ?? {} } : is;
  const patch = mergePatch(old, { ...value, metadata });
  return isExact(patch) ? { patch } : { problem: "value" };
}

/** Reports whether JSON carries a value as it is. It makes null, which removes a field, of .inf, and loses digits of large numbers. */
function isExact(v: unknown): boolean {
  if (typeof v === "number") return Number.isFinite(v) && (!Number.isInteger(v) || Number.isSafeInteger(v));
  if (typeof v !== "object" || v === null) return true;
  return (Array.isArray(v) || isPlain(v)) && Object.values(v).every(isExact);
}

/** Returns the merge patch (RFC 7386) from one object to another; undefined where they are equal. */
export function mergePatch(before: Fields, after: Fields): Fields | undefined {
  const out: [string, unknown][] = [];
  for (const key of Object.keys(before)) if (!Object.hasOwn(after, key)) out.push([key, null]);
  for (const [key, value] of Object.entries(after)) {
    const old = Object.hasOwn(before, key) ? before[key] : undefined;
    if (isFields(old) && isPlain(value)) {
      const inner = mergePatch(old, value);
      if (inner) out.push([key, inner]);
    } else if (!isEqual(old, value)) {
      out.push([key, value]);
    }
  }
  return out.length > 0 ? Object.fromEntries(out) : undefined;
}

/** Dates and sets, which tags of YAML make, are no fields. */
function isPlain(v: unknown): v is Fields {
  return isFields(v) && Object.getPrototypeOf(v) === Object.prototype;
}

function isEqual(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((v, i) => isEqual(v, b[i]));
  if (isPlain(a) && isPlain(b)) return mergePatch(a, b) === undefined;
  return a === b;
}
