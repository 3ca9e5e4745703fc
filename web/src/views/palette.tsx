import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Person } from "../api/client";
import type { Cluster } from "../api/types.gen";
import { appRow } from "../model/application";
import { clusterRow } from "../model/cluster";
import { type Entry, applicationEntries, clusterEntries, findEntries } from "../model/palette";
import { t, textOr } from "../text/text";
import { linkTo, navigate, useCollection } from "../ui/hooks";
import { Icon } from "../ui/icons";
import { Text } from "../ui/parts";
import { useApplications } from "./applications";
import { clustersPath } from "./fleet";

const listID = "palette-list";
const optionID = (i: number) => `palette-${i}`;
const pageStep = 8;

/**
 * Finds clusters, applications, their logs, pages and actions by typing. It reads the collections of the fleet and of the applications
 * only while it is open.
 */
export function Palette({ person, actions, onClose }: { person: Person; actions: Entry[]; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const clusters = useCollection<Cluster>(clustersPath);
  const applications = useApplications(person, "");
  const ofFleet = useMemo(() => clusterEntries(clusters.items.map(clusterRow), (name) => linkTo("clusters", name), (s) => textOr("cluster.status." + s, s)), [clusters.items]);
  const ofApplications = useMemo(
    () => applicationEntries(applications.items.map(appRow), (view, r) => (view === "logs" ? linkTo("logs", r.namespace, "Bundle", r.name) : linkTo("applications", r.namespace || "-", r.name)), (s) => textOr("app.status." + s, s)),
    [applications.items],
  );
  const found = useMemo(() => findEntries([...actions, ...ofApplications, ...ofFleet], query), [actions, ofApplications, ofFleet, query]);
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
  const isReading = query !== "" && !((clusters.loaded || clusters.refusal) && (applications.loaded || applications.refusal || applications.namespace === ""));
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
      <p class="muted small palette-foot" role="status">{isReading ? t("loading") : found.length === 0 ? t("palette.none") : query === "" ? t("palette.hint") : ""}</p>
    </dialog>
  );
}
