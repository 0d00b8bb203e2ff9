/** `if (await confirm({ title: "Remove sqlite?", text: "…", verb: "Remove server", danger: true })) …` */
import { shallowRef } from "vue";

export interface Question {
  title: string;
  text?: string;
  verb: string;
  danger?: boolean;
  /** The user must type this name first; only for what goes with its data. */
  typeName?: string;
}

export const asked = shallowRef<(Question & { answer: (yes: boolean) => void }) | null>(null);

export function confirm(question: Question): Promise<boolean> {
  asked.value?.answer(false);
  return new Promise((resolve) => {
    asked.value = {
      ...question,
      answer: (yes) => {
        asked.value = null;
        resolve(yes);
      },
    };
  });
}
