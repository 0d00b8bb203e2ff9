import { api, take } from "@/api/client";
import { endSession, signedOut } from "@/api/session";

/** Asks the gateway whether the session of this tab is still valid. If the gateway cannot be reached, the answer is no. */
export async function isSignedIn(): Promise<boolean> {
  if (signedOut.value) return false;
  try {
    const { signed_in } = await take(api.GET("/api/session"));
    if (!signed_in) endSession();
    return signed_in;
  } catch {
    return false; // the form reports the cause
  }
}
