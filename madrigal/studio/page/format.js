// Figures as a person reads them.
export function bytes(count) {
  if (count === null || count === undefined) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export const count = (value) =>
  value === null || value === undefined ? '–' : Math.round(value).toLocaleString('en-US');

/** Four figures, whatever the size. */
export function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace('e+', 'e');
  if (size >= 1000) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(4)));
}

/** As a clock on a player shows it. */
export function clock(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  const minutes = Math.floor(seconds / 60);
  const rest = seconds - 60 * minutes;
  return `${minutes}:${rest < 10 ? '0' : ''}${rest.toFixed(1)}`;
}

/** A wait: milliseconds where that is what counts. */
export const wait = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

export const seconds = (value) => `${value.toFixed(2)} s`;

export function ago(unix, now = Date.now() / 1000) {
  if (!unix) return '–';
  const age = Math.max(0, now - unix);
  if (age < 10) return 'now';
  if (age < 90) return `${Math.round(age)} s ago`;
  if (age < 5400) return `${Math.round(age / 60)} min ago`;
  if (age < 129_600) return `${Math.round(age / 3600)} h ago`;
  return new Date(unix * 1000).toISOString().slice(0, 10);
}

export const day = (unix) => (unix ? new Date(unix * 1000).toISOString().slice(0, 16).replace('T', ' ') : '–');

/** A name that is safe for a file: of a text, its first words. */
export function slug(text, length = 40) {
  const plain = text
    .toLowerCase()
    .normalize('NFKD')
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '');
  return plain.slice(0, length).replace(/-+$/, '') || 'madrigal';
}
