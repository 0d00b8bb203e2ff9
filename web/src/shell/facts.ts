/** What the frame around the screens shows: counts in the navigation, version, profiles. */
import { useQuery } from "@tanstack/vue-query";
import { computed } from "vue";
import { api, take } from "@/api/client";
import { signedOut } from "@/api/session";

const inside = computed(() => !signedOut.value);

export const useOverview = () => useQuery({ queryKey: ["overview"], queryFn: () => take(api.GET("/api/overview")), enabled: inside });
export const useAbout = () => useQuery({ queryKey: ["about"], queryFn: () => take(api.GET("/api/about")), enabled: inside });
export const useProfiles = () => useQuery({ queryKey: ["profiles"], queryFn: () => take(api.GET("/api/profiles")), enabled: inside });

/** By the name of the route. */
export function useCounts() {
  const { data } = useOverview();
  return computed<Record<string, number | undefined>>(() => ({
    servers: data.value?.servers.length,
    tools: data.value?.gateway.tools,
    commands: data.value?.commands,
    approvals: data.value?.waiting.filter((one) => one.kind !== "sign_in").length,
  }));
}
