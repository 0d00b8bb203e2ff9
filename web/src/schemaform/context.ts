/** What the parts of one form share. */
import { inject, provide, type InjectionKey, type Ref } from "vue";
import type { Schema } from "./schema";

export interface FormContext {
  root: Ref<Schema>;
  /** What to say at a place, in words; nothing while it is too early to say it. */
  said: (path: string) => string | null;
  /** Whether anything is said at this place or inside. */
  troubled: (path: string) => boolean;
  /** The user was at this place: what is missing there may be said. */
  visited: (path: string) => void;
  /** The text of a JSON field that is no JSON (yet); null when it is. */
  broke: (path: string, message: string | null) => void;
}

const KEY: InjectionKey<FormContext> = Symbol("schema form");
export const provideForm = (context: FormContext): void => provide(KEY, context);
export const useForm = (): FormContext => inject(KEY)!;
