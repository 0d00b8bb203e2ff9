import { useQuery } from "@tanstack/vue-query";
import { api, take } from "@/api";

/** They change only with the program. */
export const useAuthTypes = () => useQuery({ queryKey: ["auth-types"], queryFn: () => take(api.GET("/api/auth-types")), staleTime: Infinity });
