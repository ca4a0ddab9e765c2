// What the server wrote into index.html: the path prefix and the version of the page's files.

const root = typeof document === "undefined" ? undefined : document.documentElement;

/** The path prefix of the server, "" or "/x". */
export const base: string = root?.dataset.base ?? "";

/** The version of the page's files, part of their addresses. */
export const pageVersion: string = root?.dataset.version ?? "";

/** The address of one of the page's own files. */
export const fileUrl = (name: string): string => `${base}/ui/${pageVersion}/${name}`;

/** Copies a text. Needs a secure context, or localhost; false where the browser refuses. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
