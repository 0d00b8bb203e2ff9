/**
 * The session of this browser. Each request needs the cookie, which the browser sends to every port of the host, and a
 * secret, which only this origin can read. The secret is kept in `sessionStorage`, so that reloads of a tab need no new
 * sign-in. A new tab gets the secret from another open tab of this origin; if no tab answers, it shows the login screen.
 */
import { ref } from "vue";

type Message = { kind: "request" } | { kind: "secret"; secret: string };

const HEADER = "X-Mcpx-Session";
const KEPT_AS = "mcpx.session";
/** Milliseconds that a new tab waits for another tab. */
const LONGEST_WAIT = 300;

/** The shell shows the login screen while this is true. */
export const signedOut = ref(false);

const tabs = new BroadcastChannel("mcpx.session");
let received: (() => void) | null = null;

const secretOfTab = (): string | null => sessionStorage.getItem(KEPT_AS);

function send(message: Message): void {
  tabs.postMessage(message);
}

function keep(secret: string): void {
  sessionStorage.setItem(KEPT_AS, secret);
  signedOut.value = false;
}

tabs.onmessage = ({ data }: MessageEvent<Message>) => {
  if (data.kind === "secret") {
    keep(data.secret);
    received?.();
    return;
  }
  const secret = secretOfTab();
  if (secret !== null) send({ kind: "secret", secret });
};

/** Signed in: the cookie is a new one, so all tabs need the new secret. */
export function beginSession(secret: string): void {
  keep(secret);
  send({ kind: "secret", secret });
}

export function endSession(): void {
  sessionStorage.removeItem(KEPT_AS);
  signedOut.value = true;
}

/** The gateway refused a request. Another tab may have signed in since the request was sent. */
export function refused(sent: string | null): void {
  if (sent === secretOfTab()) endSession();
}

export function sessionHeaders(): Record<string, string> {
  const secret = secretOfTab();
  return secret === null ? {} : { [HEADER]: secret };
}

export const secretIn = (headers: Headers): string | null => headers.get(HEADER);

/** For the start of the page. */
export async function findSession(): Promise<void> {
  if (secretOfTab() !== null) return;
  await new Promise<void>((resolve) => {
    received = resolve;
    setTimeout(resolve, LONGEST_WAIT);
    send({ kind: "request" });
  });
  received = null;
  if (secretOfTab() === null) signedOut.value = true;
}
