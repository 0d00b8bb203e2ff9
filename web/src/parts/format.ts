/** Numbers, times and sizes in the language of the page. Nothing (`null`, `undefined`) is a dash. */
import { onScopeDispose, ref, type Ref } from "vue";
import { useI18n } from "vue-i18n";

export const DASH = "–";
const now = ref(Date.now());
let watchers = 0;
let ticking: ReturnType<typeof setInterval> | undefined;

/** A clock that ticks once a second while somebody looks at it. */
export function useNow(): Ref<number> {
  if (watchers++ === 0) ticking = setInterval(() => (now.value = Date.now()), 1000);
  now.value = Date.now();
  onScopeDispose(() => {
    if (--watchers === 0) clearInterval(ticking);
  });
  return now;
}

export type Moment = number | string | Date | null | undefined;

/** Milliseconds since the epoch of an ISO text, a Date, or a number of seconds or milliseconds. */
export function millis(moment: Moment): number | null {
  if (moment === null || moment === undefined || moment === "") return null;
  if (typeof moment === "number") return moment < 1e11 ? moment * 1000 : moment;
  const at = moment instanceof Date ? moment.getTime() : Date.parse(moment);
  return Number.isNaN(at) ? null : at;
}

export function useFormat() {
  const { locale, t } = useI18n();

  const number = (value: number | null | undefined, digits = 0) =>
    value === null || value === undefined ? DASH : new Intl.NumberFormat(locale.value, { maximumFractionDigits: digits }).format(value);

  /** "4 s", "3 h 12 min", "2 d": at most two units. */
  const duration = (seconds: number | null | undefined): string => {
    if (seconds === null || seconds === undefined) return DASH;
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < 60) return t("parts.time.s", { n: whole });
    if (whole < 3600) return t("parts.time.min", { n: Math.floor(whole / 60) });
    if (whole < 86400) {
      const minutes = Math.floor((whole % 3600) / 60);
      const hours = t("parts.time.h", { n: Math.floor(whole / 3600) });
      return minutes ? `${hours} ${t("parts.time.min", { n: minutes })}` : hours;
    }
    return t("parts.time.d", { n: Math.floor(whole / 86400) });
  };

  /** "12 s ago", against a clock from `useNow`. */
  const ago = (moment: Moment, at: number): string => {
    const then = millis(moment);
    if (then === null) return DASH;
    const seconds = (at - then) / 1000;
    if (seconds < 2 && seconds > -2) return t("parts.time.now");
    return seconds > 0 ? t("parts.time.ago", { span: duration(seconds) }) : t("parts.time.in", { span: duration(-seconds) });
  };

  const clock = (moment: Moment): string => {
    const then = millis(moment);
    return then === null ? DASH : new Intl.DateTimeFormat(locale.value, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }).format(then);
  };

  const dateTime = (moment: Moment): string => {
    const then = millis(moment);
    return then === null ? DASH : new Intl.DateTimeFormat(locale.value, { dateStyle: "medium", timeStyle: "medium", hour12: false }).format(then);
  };

  const date = (moment: Moment): string => {
    const then = millis(moment);
    return then === null ? DASH : new Intl.DateTimeFormat(locale.value, { dateStyle: "medium" }).format(then);
  };

  const bytes = (value: number | null | undefined): string => {
    if (value === null || value === undefined) return DASH;
    if (value < 1024) return `${number(value)} B`;
    if (value < 1024 ** 2) return `${number(value / 1024, 1)} KiB`;
    return `${number(value / 1024 ** 2, 1)} MiB`;
  };

  return { number, duration, ago, clock, dateTime, date, bytes };
}
