export const RANGES = ["15m", "1h", "24h", "7d"] as const;
export type Range = (typeof RANGES)[number];
