/** Bytes of a result as something the page may show: kinds that cannot carry script, nothing else. */
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);
const SOUNDS = new Set(["audio/mpeg", "audio/mp3", "audio/wav", "audio/x-wav", "audio/wave", "audio/ogg", "audio/webm", "audio/mp4", "audio/aac", "audio/flac"]);

export const kindOf = (type: unknown): "image" | "audio" | null => {
  const plain = typeof type === "string" ? type.split(";")[0]!.trim().toLowerCase() : "";
  return IMAGES.has(plain) ? "image" : SOUNDS.has(plain) ? "audio" : null;
};

/** Null when it is no base64. */
export function bytesOf(data: unknown): Uint8Array<ArrayBuffer> | null {
  if (typeof data !== "string") return null;
  try {
    return Uint8Array.from(atob(data.replace(/\s/g, "")), (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}

/** An address that may be opened, and its host; null for every other scheme. */
export function webAddress(uri: unknown): { href: string; host: string } | null {
  if (typeof uri !== "string") return null;
  try {
    const url = new URL(uri);
    return url.protocol === "https:" || url.protocol === "http:" ? { href: url.href, host: url.host } : null;
  } catch {
    return null;
  }
}
