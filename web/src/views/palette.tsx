import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Person, RequestError } from "../api/client";
import { type Found, searchNames } from "../api/fleet";
import { type Entry, findEntries, foundEntries, searchText } from "../model/palette";
import { t, textOr } from "../text/text";
import { linkTo, navigate } from "../ui/hooks";
import { Icon } from "../ui/icons";
import { Text } from "../ui/parts";
import { rememberedNamespace } from "./signin";

/** The hub searches once no key was pressed for so many milliseconds. */
const settleTime = 150;
const listID = "palette-list";
const optionID = (i: number) => `palette-${i}`;
const pageStep = 8;

interface Search {
  found: readonly Found[];
  /** The text of the present query is searched. */
  busy: boolean;
}

const nothing: Search = { found: [], busy: false };

/** Searches the hub for a text. What was found before stays until the answer. */
function useSearch(text: string, namespace: string): Search {
  const [done, setDone] = useState<{ text: string; found: readonly Found[] }>({ text: "", found: [] });
  useEffect(() => {
    if (text === "" || text === done.text) return undefined;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const search = () =>
      searchNames(text, namespace, stop.signal).then(
        (found) => setDone({ text, found }),
        (e) => {
          if (stop.signal.aborted) return;
          if (e instanceof RequestError && e.code === 429) timer = setTimeout(search, Math.max(1, e.retryAfter) * 1000);
          else setDone({ text, found: [] });
        },
      );
    timer = setTimeout(search, settleTime);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, namespace, done.text]);
  return text === "" ? nothing : { found: done.found, busy: text !== done.text };
}

const texts = {
  stateOf: (s: string) => textOr("cluster.status." + s, s),
  addressOf: linkTo,
  actionOf: (a: "sync" | "suspend" | "resume") => t(`source.${a}`),
  copyOf: (command: string) => t("palette.copies", { command }),
  copy: (command: string) => void navigator.clipboard?.writeText(command),
};

/** Finds clusters, applications, their logs, Sources, policies, Placements, pages and actions by typing. The hub searches: nothing is listed. */
export function Palette({ person, actions, onClose }: { person: Person; actions: Entry[]; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const text = searchText(query);
  const search = useSearch(text, rememberedNamespace(person));
  const found = useMemo(() => findEntries([...actions, ...foundEntries(search.found, texts)], query), [actions, search.found, query]);
  const chosen = Math.min(at, found.length - 1);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  useEffect(() => document.getElementById(optionID(chosen))?.scrollIntoView({ block: "nearest" }), [chosen, found]);
  const open = (e: Entry) => {
    dialog.current?.close();
    if (e.to !== undefined) navigate(e.to);
    e.run?.();
  };
  const keys = (e: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: pageStep, PageUp: -pageStep }[e.key];
    if (step !== undefined && found.length > 0) {
      e.preventDefault();
      setAt(Math.abs(step) === 1 ? (chosen + step + found.length) % found.length : Math.min(found.length - 1, Math.max(0, chosen + step)));
    }
    const entry = found[chosen];
    if (e.key === "Enter" && !e.isComposing && entry) {
      e.preventDefault();
      open(entry);
    }
  };
  return (
    <dialog ref={dialog} class="palette" aria-label={t("palette.title")} onClose={onClose} onClick={(e) => e.target === dialog.current && dialog.current?.close()}>
      <div class="palette-query">
        <Icon name="search" />
        <input
          type="text" role="combobox" aria-expanded="true" aria-controls={listID} aria-autocomplete="list" aria-activedescendant={found.length > 0 ? optionID(chosen) : undefined} aria-label={t("palette.title")}
          value={query} placeholder={t("palette.placeholder")} maxLength={200} spellcheck={false} autocomplete="off" autofocus onKeyDown={keys} onInput={(e) => (setQuery(e.currentTarget.value), setAt(0))}
        />
        <kbd>Esc</kbd>
      </div>
      <ul id={listID} role="listbox" aria-label={t("palette.title")}>
        {found.map((e, i) => (
          <li key={e.key} id={optionID(i)} role="option" aria-selected={i === chosen} class="palette-entry" onClick={() => open(e)}>
            <span class="kind">{t(`palette.group.${e.group}`)}</span>
            <span class="name line"><Text>{e.title}</Text></span>
            <span class="muted small line"><Text>{e.detail}</Text></span>
          </li>
        ))}
      </ul>
      <p class="muted small palette-foot" role="status">{search.busy ? t("loading") : found.length === 0 ? t("palette.none") : query === "" ? t("palette.hint") : ""}</p>
    </dialog>
  );
}
