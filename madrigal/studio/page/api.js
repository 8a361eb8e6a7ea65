// The one way to the server: the key, the errors in its own words, files as blob addresses.
import { askForKey, storedKey } from './key.js';

/** What the server said: its sentence, the parameter it is about, and when to come back. */
export class StudioError extends Error {
  constructor(message, { status = 0, param = null, code = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, param, code, retryAfter });
  }
}

/** Relative to the page, so that the studio also works below a prefix. */
export const address = (path) => new URL(path.replace(/^\//, ''), new URL('./', location.href)).href;

export const runPath = (id, rest = '') => `/api/runs/${encodeURIComponent(id)}${rest}`;

async function failure(response) {
  const seconds = Number(response.headers.get('Retry-After')) || null;
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // not in our shape: a proxy's page, perhaps
  }
  let message = error?.message ?? `The server answered ${response.status} ${response.statusText}.`.replace(' .', '.');
  if (seconds && (response.status === 429 || response.status === 503)) message += ` Try again in ${seconds} s.`;
  return new StudioError(message, {
    status: response.status,
    param: error?.param,
    code: error?.code,
    retryAfter: seconds,
  });
}

/** The raw response; asks for the key and goes on where the server wants one. */
export async function request(path, { method = 'GET', json, form, signal } = {}) {
  for (;;) {
    const key = storedKey();
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (json !== undefined) headers['Content-Type'] = 'application/json';
    let response;
    try {
      response = await fetch(address(path), {
        method,
        headers,
        body: json === undefined ? form : JSON.stringify(json),
        signal,
      });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new StudioError('The studio does not answer; is `madrigal studio` still running?');
    }
    if (response.status === 401) {
      await askForKey(key);
      continue;
    }
    if (!response.ok) throw await failure(response);
    return response;
  }
}

export const get = async (path, signal) => (await request(path, { signal })).json();

export async function post(path, json, signal) {
  const response = await request(path, { method: 'POST', json, signal });
  return response.status === 204 ? null : response.json();
}

export const remove = (path) => request(path, { method: 'DELETE' });

export function formOf(values) {
  const form = new FormData();
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === null || value === '') continue;
    if (value instanceof Blob) form.append(name, value, value.name ?? name);
    else form.append(name, String(value));
  }
  return form;
}

const kept = new Map();

/** A blob address of a file: `<audio>` and `<img>` cannot carry the key themselves. */
export function fileUrl(path) {
  if (!kept.has(path)) {
    const made = request(path)
      .then((response) => response.blob())
      .then((blob) => URL.createObjectURL(blob));
    made.catch(() => kept.delete(path));
    kept.set(path, made);
  }
  return kept.get(path);
}

/** Called when a view is left: what it has fetched is let go, but not while something still reads it. */
export function releaseFiles() {
  const old = [...kept.values()];
  kept.clear();
  setTimeout(
    () =>
      old.forEach((made) =>
        made.then(
          (url) => URL.revokeObjectURL(url),
          () => {},
        ),
      ),
    10_000,
  );
}
