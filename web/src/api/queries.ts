import { QueryClient } from "@tanstack/vue-query";
import { ApiError } from "./errors";

/** Events say what changed, so answers stay good for long; only what may pass by itself is tried again. */
export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      refetchOnWindowFocus: true,
      retry: (times, fault) => {
        const status = ApiError.of(fault).status;
        return times < 2 && (status === 0 || status >= 500);
      },
    },
  },
});
