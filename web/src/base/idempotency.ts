// Keys that make a repeated request the same request.

export const newKey = (): string => `ui-${Date.now()}-${Math.random().toString(36).slice(2)}`;
