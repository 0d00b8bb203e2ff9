/**
 * Links to third-party addresses: `<a :href="outside(url)" v-bind="NEW_TAB">`. The browser would send the session cookie
 * to another port of this host. A link through `/leave` sends none.
 */
import { base } from "./client";

export const NEW_TAB = { target: "_blank", rel: "noopener noreferrer" } as const;

export const outside = (url: string): string => `${base}/leave?to=${encodeURIComponent(url)}`;
