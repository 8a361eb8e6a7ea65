// The curves of a run, and of others over them: asks the server only for what is new.
import { get, runPath } from './api.js';
import { Chart } from './chart.js';
import { el, replace, slider } from './dom.js';
import { problemPlace } from './problem.js';
import { extended, spacing } from './series.js';
import { runColour } from './theme.js';

const POLL = 2000;

/** What all charts of the panel share; a change of it is drawn by all. */
class Shared {
  constructor() {
    Object.assign(this, {
      charts: [],
      domain: null,
      cursor: null,
      log: false,
      smoothing: 0,
      spacing: 1,
      whole: [0, 1],
      onLog: () => {},
    });
  }

  visibleDomain() {
    return this.domain ?? this.whole;
  }

  zoomTo(domain) {
    const [low, high] = this.whole;
    if (domain && domain[1] - domain[0] < (high - low) * 1e-4) return;
    if (domain) this.domain = [Math.max(low, domain[0]), Math.min(high, domain[1])];
    if (!domain || this.domain[0] >= this.domain[1] || (this.domain[0] <= low && this.domain[1] >= high))
      this.domain = null;
    this.refresh();
  }

  zoomBy(factor, around) {
    const [low, high] = this.visibleDomain();
    this.zoomTo([around - (around - low) * factor, around + (high - around) * factor]);
  }

  pan(part) {
    if (!this.domain) return;
    const [low, high] = this.domain;
    const by = Math.min(this.whole[1] - high, Math.max(this.whole[0] - low, part * (high - low)));
    this.zoomTo([low + by, high + by]);
  }

  moveCursor(step) {
    if (step === this.cursor) return;
    const [low, high] = this.visibleDomain();
    this.cursor = step === null ? null : Math.min(high, Math.max(low, step));
    this.asked ??= requestAnimationFrame(() => {
      this.asked = undefined;
      for (const chart of this.charts) chart.paint();
    });
  }

  toggleLog() {
    this.log = !this.log;
    this.onLog(this.log);
    this.refresh();
  }

  refresh() {
    for (const chart of this.charts) chart.refresh();
  }
}

/** The points of one run, brought up to date by `since`. */
class RunSeries {
  constructor(id) {
    this.id = id;
    this.series = new Map();
    this.last = 0;
  }

  /** True when something has changed. */
  async update(signal) {
    const since = this.series.size ? `&since=${this.last}` : '';
    const answer = await get(runPath(this.id, `/metrics?points=2000${since}`), signal);
    if (since && answer.last_step < this.last) {
      this.series.clear(); // a resumed run takes some of its steps again
      this.last = 0;
      return this.update(signal);
    }
    let changed = false;
    for (const [name, points] of Object.entries(answer.series)) {
      if (!points.length) continue;
      const known = this.series.get(name) ?? [];
      const all = extended(
        known,
        points.filter(([, value]) => value !== null),
      );
      if (all !== known) changed = true;
      this.series.set(name, all);
    }
    this.last = Math.max(this.last, answer.last_step ?? 0);
    return changed;
  }
}

/** valid/ema/mel is drawn with valid/mel, dashed. */
const chartOf = (name, names) => {
  const plain = name.replace('/ema/', '/');
  return plain !== name && names.has(plain) ? plain : name;
};

function sections(names) {
  const found = new Map();
  for (const name of names) {
    const section = name.includes('/') ? name.split('/')[0] : 'training';
    if (!found.has(section)) found.set(section, []);
    found.get(section).push(name);
  }
  const rank = (section) => (section === 'valid' ? 0 : 1);
  return [...found].sort(([a], [b]) => rank(a) - rank(b));
}

export async function curvesPanel(place, id, runs, { live }) {
  const shared = new Shared();
  const shown = [new RunSeries(id)];
  const problems = problemPlace();
  const grid = el('div', { class: 'chart-sections' });
  const legend = el('ul', { class: 'legend', 'aria-label': 'Runs in the charts' });
  const charts = new Map();
  const stop = new AbortController();
  let filter = '';

  const smoothing = slider('Smoothing', {
    min: 0,
    max: 0.99,
    step: 0.01,
    value: 0,
    show: (value) => (value ? value.toFixed(2) : 'off'),
  });
  smoothing.range.addEventListener('input', () => {
    shared.smoothing = smoothing.value();
    shared.refresh();
  });
  const log = el('input', { type: 'checkbox', onchange: () => shared.toggleLog() });
  shared.onLog = (on) => {
    log.checked = on;
  };
  const search = el('input', {
    type: 'search',
    placeholder: 'mel, loss …',
    oninput: () => {
      filter = search.value.trim().toLowerCase();
      arrange();
    },
  });
  const compare = el('select', { onchange: () => add(compare.value) });

  const drawLegend = () => {
    replace(
      legend,
      shown.map((run, index) => {
        const swatch = el('i', { class: 'swatch' });
        swatch.style.borderColor = runColour(index);
        return el(
          'li',
          {},
          swatch,
          run.id,
          index > 0 &&
            el(
              'button',
              {
                type: 'button',
                class: 'quiet small',
                'aria-label': `Take ${run.id} out of the charts`,
                onclick: () => {
                  shown.splice(index, 1);
                  drawLegend();
                  refresh();
                },
              },
              '×',
            ),
        );
      }),
      el('li', { class: 'muted' }, 'dashed: averaged weights'),
    );
    replace(
      compare,
      el('option', { value: '' }, 'Add a run …'),
      runs
        .filter((row) => !shown.some((run) => run.id === row.id))
        .map((row) => el('option', { value: row.id }, row.id)),
    );
  };

  /** Sections and charts for the names there are; built only when the names or the filter change. */
  let arranged = '';
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const chart = entry.target.chart;
        const was = chart.visible;
        chart.visible = entry.isIntersecting;
        if (!was && chart.visible) chart.refresh();
      }
    },
    { rootMargin: '200px' },
  );
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.chart.refresh()));

  function arrange() {
    const all = new Set(shown[0].series.keys());
    const titles = [...all].filter((name) => chartOf(name, all) === name && name.toLowerCase().includes(filter));
    const key = titles.join(' ');
    if (key === arranged && key) return;
    arranged = key;
    shared.charts = [];
    const parts = sections(titles).map(([section, names]) =>
      el(
        'section',
        { 'aria-label': section },
        el('h3', {}, section),
        el(
          'div',
          { class: 'charts' },
          names.map((name) => {
            if (!charts.has(name)) {
              const chart = new Chart(name, shared);
              chart.canvas.chart = chart;
              watcher.observe(chart.canvas);
              sizes.observe(chart.canvas);
              charts.set(name, chart);
            }
            shared.charts.push(charts.get(name));
            return charts.get(name).element;
          }),
        ),
      ),
    );
    const none = all.size
      ? 'No term has that in its name.'
      : 'No step is logged yet. The first curve appears here by itself.';
    replace(grid, parts.length ? parts : el('p', { class: 'empty' }, none));
    refresh();
  }

  function refresh() {
    const firsts = shown
      .flatMap((run) => [...run.series.values()].map((points) => points[0]?.[0]))
      .filter((step) => step !== undefined);
    const lasts = shown.map((run) => run.last);
    const [low, high] = [Math.min(...firsts), Math.max(...lasts)];
    shared.whole = firsts.length ? [low, Math.max(high, low + 1)] : [0, 1];
    shared.spacing = Math.min(...shown.flatMap((run) => [...run.series.values()].map(spacing)));
    for (const [name, chart] of charts) {
      const lines = [];
      shown.forEach((run, index) => {
        const names = new Set(run.series.keys());
        for (const term of names) {
          if (chartOf(term, names) !== name) continue;
          lines.push({
            label: `${run.id}${term === name ? '' : ' (EMA)'}`,
            colour: runColour(index),
            dashed: term !== name,
            points: run.series.get(term),
          });
        }
      });
      lines.sort((a, b) => Number(a.dashed) - Number(b.dashed));
      chart.set(lines);
    }
  }

  async function add(other) {
    if (!other) return;
    const run = new RunSeries(other);
    try {
      await run.update(stop.signal);
    } catch (error) {
      problems.show(error);
      return;
    }
    shown.push(run);
    drawLegend();
    refresh();
  }

  replace(
    place,
    el(
      'div',
      { class: 'tools' },
      el('label', { class: 'field' }, el('span', {}, 'Terms'), search),
      smoothing.element,
      el('label', { class: 'field check' }, log, el('span', {}, 'Log scale')),
      el('label', { class: 'field' }, el('span', {}, 'Compare with'), compare),
      el('button', { type: 'button', onclick: () => shared.zoomTo(null) }, 'Show all'),
    ),
    legend,
    problems.element,
    grid,
    el(
      'p',
      { class: 'hint' },
      'Drag to zoom, double click to see all. On a chosen chart: wheel or ',
      el('kbd', {}, '+'),
      ' ',
      el('kbd', {}, '−'),
      ' zoom, ',
      el('kbd', {}, '←'),
      ' ',
      el('kbd', {}, '→'),
      ' read values, with ',
      el('kbd', {}, 'Shift'),
      ' move, ',
      el('kbd', {}, 'L'),
      ' log scale, ',
      el('kbd', {}, '0'),
      ' all.',
    ),
  );

  drawLegend();
  await shown[0].update(stop.signal);
  arrange();
  refresh();

  let timer = null;
  const poll = async () => {
    try {
      if (!document.hidden && live()) {
        const changes = await Promise.all(shown.map((run) => run.update(stop.signal)));
        problems.clear();
        if (changes.some(Boolean)) {
          arrange();
          refresh();
        }
      }
    } catch (error) {
      if (error.name === 'AbortError') return;
      problems.show(error);
    }
    timer = setTimeout(poll, POLL);
  };
  timer = setTimeout(poll, POLL);
  const recolour = () => {
    drawLegend();
    refresh();
  };
  document.addEventListener('themechange', recolour);
  return () => {
    clearTimeout(timer);
    stop.abort();
    watcher.disconnect();
    sizes.disconnect();
    document.removeEventListener('themechange', recolour);
  };
}
