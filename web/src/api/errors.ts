import { inOwnWords, wordsReady, type Said } from "./said";

/** One of several mistakes, with the place it is at. */
export interface Mistake {
  path: string | null;
  message: string;
  said?: Said | null;
}

/** The one error that screens meet: what the gateway answered, or that it could not be reached (status 0). */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly path: string | null = null,
    readonly hint: string | null = null,
    readonly errors: readonly Mistake[] = [],
    /** Codes of the gateway's own sentences in it. */
    readonly said: Said = {},
    /** The message is in the words of the page already. */
    readonly isWorded = false,
  ) {
    super(message);
  }

  /** Somebody else changed the configuration since it was read. */
  get isStale(): boolean {
    return this.status === 412;
  }

  static async from(response: Response): Promise<ApiError> {
    const body: unknown = await response.clone().json().catch(() => null);
    const told = (body as { error?: Partial<Record<"code" | "message" | "path" | "hint", string | null>> & { errors?: Mistake[]; said?: Said } } | null)?.error;
    const english = told?.message;
    await wordsReady();
    inOwnWords(told);
    return new ApiError(
      response.status,
      told?.code ?? `http_${response.status}`,
      told?.message ?? `${response.status} ${response.statusText}`.trim(),
      told?.path ?? null,
      told?.hint ?? null,
      told?.errors ?? [],
      told?.said ?? {},
      told?.message !== english,
    );
  }

  static of(fault: unknown): ApiError {
    if (fault instanceof ApiError) return fault;
    return new ApiError(0, "unreachable", fault instanceof Error ? fault.message : String(fault));
  }
}
