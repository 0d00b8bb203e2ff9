/** A pasted text on its way from one screen to another: too long for an address, and it may hold secrets. */
export interface HandedOver {
  kind: "openapi" | "curl";
  text: string;
}

let waiting: HandedOver | null = null;

export function handOver(what: HandedOver): void {
  waiting = what;
}

/** Gives it once. */
export function takeHandedOver(): HandedOver | null {
  const taken = waiting;
  waiting = null;
  return taken;
}
