/**
 * The texts being edited, one a file, for as long as the config screens are open. A file that changed on disk while
 * nothing was typed is taken over in silence; one with unsaved changes becomes a conflict until the user decided.
 */
import { computed, inject, provide, reactive, watch, type InjectionKey, type Ref } from "vue";
import type { components } from "@/api";
import { merge } from "./merge";

export type ConfigTold = components["schemas"]["ConfigTold"];
export type ConfigFile = components["schemas"]["ConfigFile"];

export interface Draft {
  /** The text that the changes were made to, and the state of the configuration it belongs to. */
  base: string;
  etag: string;
  text: string;
  /** As the file is now, where it is neither the base nor what was typed. */
  theirs: string | null;
}

export const isChanged = (draft: Draft): boolean => draft.text !== draft.base;

function made(config: Ref<ConfigTold | undefined>) {
  const drafts = reactive(new Map<string, Draft>());

  function follow(draft: Draft, text: string, etag: string): void {
    if (text !== draft.base && isChanged(draft) && text !== draft.text) {
      draft.theirs = text;
      return;
    }
    if (text !== draft.base) {
      draft.base = text;
      draft.text = text;
    }
    draft.etag = etag;
    draft.theirs = null;
  }
  watch(
    config,
    (told) => {
      for (const file of told?.files ?? []) {
        const draft = drafts.get(file.path);
        if (draft) follow(draft, file.text, told!.etag);
        else drafts.set(file.path, { base: file.text, etag: told!.etag, text: file.text, theirs: null });
      }
      for (const [path, draft] of drafts) if (!told?.files.some((file) => file.path === path) && !isChanged(draft)) drafts.delete(path);
    },
    { immediate: true },
  );

  const changed = computed(() => [...drafts].filter(([, draft]) => isChanged(draft)).map(([path]) => path));
  const etag = () => config.value?.etag ?? "";
  return {
    drafts,
    changed,
    /** Gives up what was typed. */
    discard: (draft: Draft) => {
      draft.base = draft.text = draft.theirs ?? draft.base;
      draft.etag = etag();
      draft.theirs = null;
    },
    /** What was typed goes over what is on disk now. */
    keep: (draft: Draft) => {
      draft.base = draft.theirs ?? draft.base;
      draft.etag = etag();
      draft.theirs = null;
    },
    /** Gives the number of places where both changed the same. */
    mergeBoth: (draft: Draft, marks: { mine: string; theirs: string }): number => {
      if (draft.theirs === null) return 0;
      const merged = merge(draft.base, draft.text, draft.theirs, marks);
      draft.text = merged.text;
      draft.base = draft.theirs;
      draft.etag = etag();
      draft.theirs = null;
      return merged.overlaps;
    },
    /** It was saved, as `text`: masked by the gateway as it will come again. */
    saved: (draft: Draft, text: string, now: string) => {
      draft.base = draft.text = text;
      draft.etag = now;
      draft.theirs = null;
    },
  };
}

export type Drafts = ReturnType<typeof made>;
const KEY: InjectionKey<{ config: Ref<ConfigTold | undefined>; drafts: Drafts }> = Symbol("config drafts");

export function provideDrafts(config: Ref<ConfigTold | undefined>): Drafts {
  const drafts = made(config);
  provide(KEY, { config, drafts });
  return drafts;
}

export const useDrafts = () => inject(KEY)!;
