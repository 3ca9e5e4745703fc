import { useMemo, useState } from "preact/hooks";
import { group, inNamespace } from "../api/actions";
import type { Person } from "../api/client";
import type { CollectionState } from "../api/collection";
import { type Followed, type SourceList, followSources } from "../api/fleet";
import type { KubeObject } from "../api/kubernetes";
import type { Source } from "../api/types.gen";
import { t } from "../text/text";
import { setQuery, useCollection, useFollowed } from "../ui/hooks";
import { rememberedNamespace } from "./signin";

export interface Namespaced<T> extends CollectionState<T> {
  /** The person lists one namespace alone. */
  namespace?: string;
}

/** Follows all objects of a resource that the person may list: of all namespaces, or of one. */
export function useNamespaced<T extends KubeObject>(person: Person, chosen: string, resource: string): Namespaced<T> {
  const all = useCollection<T>(chosen === "" ? `${group}/${resource}` : undefined);
  const confined = chosen !== "" || all.refusal?.code === 403;
  const namespace = chosen || rememberedNamespace(person);
  const own = useCollection<T>(confined && namespace !== "" ? inNamespace(resource, namespace) : undefined);
  return useMemo(() => {
    if (confined && namespace === "") return { ...all, namespace: "" };
    const { items, loaded, refusal } = confined ? own : all;
    return { items, loaded, refusal, namespace: confined ? namespace : undefined };
  }, [all, own, confined, namespace]);
}

/** Follows the Sources that the person may list, without their inventories: of all namespaces, or of one. */
export function useSources(person: Person, chosen: string): Namespaced<Source> {
  const all = useFollowed<SourceList>(chosen === "" ? "" : undefined, (onChange) => followSources("", onChange));
  const confined = chosen !== "" || all.refusal?.code === 403;
  const namespace = chosen || rememberedNamespace(person);
  const own = useFollowed<SourceList>(confined && namespace !== "" ? namespace : undefined, (onChange) => followSources(namespace, onChange));
  return useMemo(() => {
    if (confined && namespace === "") return { ...collectionOf(all), namespace: "" };
    return { ...collectionOf(confined ? own : all), namespace: confined ? namespace : undefined };
  }, [all.value, all.refusal, own.value, own.refusal, confined, namespace]);
}

const none: readonly Source[] = [];

function collectionOf(f: Followed<SourceList>): CollectionState<Source> {
  return { items: f.value?.items ?? none, loaded: !!f.value || !!f.refusal, refusal: f.refusal };
}

/** Names the one namespace of a person without rights on all. */
export function NamespaceBox({ namespace }: { namespace: string }) {
  const [text, setText] = useState(namespace);
  return (
    <form class="namespace" onSubmit={(e) => (e.preventDefault(), setQuery("ns", text.trim()))}>
      <label for="namespace" class="muted small" title={t("apps.namespace.hint")}>{t("apps.namespace")}</label>
      <input id="namespace" value={text} maxLength={63} spellcheck={false} autocomplete="off" onInput={(e) => setText(e.currentTarget.value)} />
      <button type="submit" class="ghost">{t("apps.namespace.open")}</button>
    </form>
  );
}
