/** What the frame around the screens shows: counts in the navigation, version, profiles, names for the palette. */
import { useQuery } from "@tanstack/vue-query";
import { computed } from "vue";
import { ApiError } from "@/api/errors";
import { base } from "@/api/client";
import { signedOut } from "@/api/session";

export interface About {
  version: string;
  admin_url: string;
  mcp_url: string;
  profiles: { name: string; path: string }[];
  counts: Record<string, number>;
}

export function useAbout() {
  return useQuery({
    queryKey: ["overview", "about"],
    enabled: computed(() => !signedOut.value),
    queryFn: async (): Promise<Partial<About>> => {
      const response = await fetch(`${base}/api/about`, { credentials: "same-origin" });
      if (response.status === 401) signedOut.value = true;
      if (!response.ok) throw await ApiError.from(response);
      return (await response.json()) as Partial<About>;
    },
  });
}
