// A value that belongs to one write of a state: read when the state is written, and not before.

import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../../api/client.ts";

export function useRead<T>(read: () => Promise<T>, write: string): { value: T | null; error: ApiError | null } {
  const [state, set] = useState<{ value: T | null; error: ApiError | null }>({ value: null, error: null });
  useEffect(() => {
    let isOver = false;
    read().then(
      (value) => isOver || set({ value, error: null }),
      (error: unknown) => isOver || set(({ value }) => ({ value, error: error instanceof ApiError ? error : new ApiError(0, String(error)) })),
    );
    return () => void (isOver = true);
  }, [write]);
  return state;
}
