// What a chart computes before it draws: pure functions of points [[step, value], …].

/** An exponential average with its start corrected, as Adam corrects its moments. */
export function smoothed(points, weight) {
  if (!weight) return points;
  let average = 0;
  let norm = 0;
  return points.map(([x, y]) => {
    average = weight * average + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return [x, average / norm];
  });
}

/** Steps from a point to the next, on average. */
export const spacing = (points) =>
  points.length > 1 ? (points.at(-1)[0] - points[0][0]) / (points.length - 1) : Infinity;

/** The index of the first point at or after `x`. */
export function lowerBound(points, x) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function nearest(points, x) {
  if (!points.length) return null;
  const after = lowerBound(points, x);
  const candidates = [points[after - 1], points[after]].filter(Boolean);
  return candidates.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

/** Adds newer points; what is known already is not added twice. */
export function extended(points, newer) {
  const last = points.length ? points[points.length - 1][0] : -Infinity;
  const fresh = newer.filter(([x]) => x > last);
  return fresh.length ? points.concat(fresh) : points;
}

export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** The range to show: a few outliers of many points do not squeeze the curve. */
export function range(values, log) {
  const usable = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (!usable.length) return null;
  let [low, high] = extent(usable);
  if (usable.length > 100) {
    const sorted = Float64Array.from(usable).sort();
    low = sorted[Math.floor(0.002 * sorted.length)];
    high = sorted[Math.ceil(0.998 * sorted.length) - 1];
  }
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
  // Averages of equal values differ by a rounding error, which is nothing to look at.
  if (high - low <= 1e-9 * Math.abs(high)) {
    const room = Math.abs(low) * 0.1 || 1;
    return [low - room, high + room];
  }
  const room = 0.06 * (high - low);
  return [low - room, high + room];
}

/** Round numbers in [low, high], about `wanted` of them. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const part = rough / power;
  const unit = power * (part >= 7.07 ? 10 : part >= 3.16 ? 5 : part >= 1.41 ? 2 : 1);
  const [first, last] = [Math.ceil(low / unit), Math.floor(high / unit)];
  if (!(last - first < 100)) return [];
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * unit).toPrecision(12)));
}

export function logTicks(low, high, wanted) {
  const decades = Math.log10(high / low);
  if (decades < 1) return ticks(low, high, wanted).filter((value) => value > 0);
  const factors = decades > 3 ? [1] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}
