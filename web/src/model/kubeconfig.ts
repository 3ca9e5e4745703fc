// The token in what a person pastes: a token alone, or a kubeconfig as kubectl writes it.

import type { TextKey } from "../text/text";

export interface Pasted {
  token?: string;
  namespace?: string;
  problem?: TextKey;
}

interface Entry {
  name: string;
  fields: Record<string, string>;
}

/** Reads the pasted text. Nothing of it is kept or sent but the token. */
export function readPasted(text: string): Pasted {
  const trimmed = text.trim();
  if (!/\bapiVersion\b|\busers\b/.test(trimmed)) return { token: trimmed.replace(/^Bearer\s+/i, "") };
  const { current, contexts, users } = trimmed.startsWith("{") ? readJSON(trimmed) : readYAML(trimmed);
  const context = contexts.find((c) => c.name === current) ?? (contexts.length === 1 ? contexts[0] : undefined);
  const user = users.find((u) => u.name === context?.fields["user"]) ?? (users.length === 1 ? users[0] : undefined);
  const namespace = context?.fields["namespace"];
  if (user?.fields["token"]) return { token: user.fields["token"], namespace };
  if (user?.fields["client-certificate-data"] || user?.fields["client-certificate"]) return { problem: "signin.kubeconfig.certificate" };
  if (user && ("exec" in user.fields || "auth-provider" in user.fields)) return { problem: "signin.kubeconfig.command" };
  return { problem: "signin.kubeconfig.none" };
}

interface Kubeconfig {
  current: string;
  contexts: Entry[];
  users: Entry[];
}

function readJSON(text: string): Kubeconfig {
  try {
    const k = JSON.parse(text) as Record<string, unknown>;
    const entries = (list: unknown, inner: string): Entry[] =>
      (Array.isArray(list) ? list : []).map((e: Record<string, unknown>) => {
        const fields: Record<string, string> = {};
        for (const [key, value] of Object.entries((e?.[inner] as object) ?? {})) fields[key] = typeof value === "string" ? value : "{}";
        return { name: String(e?.["name"] ?? ""), fields };
      });
    return { current: String(k["current-context"] ?? ""), contexts: entries(k["contexts"], "context"), users: entries(k["users"], "user") };
  } catch {
    return { current: "", contexts: [], users: [] };
  }
}

/** Reads the block style in which kubectl and atoll write: lists of entries with name and one level of fields. */
function readYAML(text: string): Kubeconfig {
  const out: Kubeconfig = { current: "", contexts: [], users: [] };
  let section = "";
  let entry: Entry | undefined;
  for (const line of text.split(/\r?\n/)) {
    const m = /^(\s*)(- )?\s*([\w.-]+):\s*(.*)$/.exec(line);
    if (!m) continue;
    const [, indent, dash, key, raw] = m as unknown as [string, string, string | undefined, string, string];
    const value = raw.trim().replace(/^(["'])(.*)\1$/, "$2");
    if (indent === "" && !dash) {
      section = key;
      if (key === "current-context") out.current = value;
      continue;
    }
    if (section !== "contexts" && section !== "users") continue;
    if (dash) {
      entry = { name: "", fields: {} };
      out[section].push(entry);
    }
    if (!entry) continue;
    if (key === "name" && indent.length <= 2) entry.name = value;
    else if (!(key in entry.fields)) entry.fields[key] = value;
  }
  return out;
}
