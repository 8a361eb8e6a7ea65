// The table of runs: children below their parents, brought up to date by itself.
import { get } from './api.js';
import { startDialog } from './control.js';
import { announce, command, el, empty, replace } from './dom.js';
import { ago, bytes, count, figure } from './format.js';
import { problemPlace } from './problem.js';

const POLL = 3000;

export const stateMark = (state) => el('span', { class: `state ${state}` }, state);

export function progress(row) {
  if (!row.total_steps) return el('span', { class: 'number' }, count(row.step));
  const bar = el('span', { class: 'fill' });
  bar.style.width = `${Math.min(100, (100 * (row.step ?? 0)) / row.total_steps)}%`;
  return el(
    'span',
    { class: 'progress' },
    el('span', { class: 'number' }, `${count(row.step)} / ${count(row.total_steps)}`),
    el('span', { class: 'track', 'aria-hidden': 'true' }, bar),
  );
}

/** Each row with its depth, a parent before its children; the newest first. */
export function inOrder(rows) {
  const known = new Set(rows.map((row) => row.id));
  const below = (parent) => rows.filter((row) => (known.has(row.parent) ? row.parent : null) === parent);
  const newest = (row) => Math.max(row.updated ?? 0, ...below(row.id).map(newest));
  const walk = (parent, depth) =>
    below(parent)
      .sort((a, b) => (depth ? a.id.localeCompare(b.id) : newest(b) - newest(a)))
      .flatMap((row) => [{ row, depth }, ...walk(row.id, depth + 1)]);
  return walk(null, 0);
}

function line({ row, depth }) {
  const name = el('a', { href: `#/run/${encodeURIComponent(row.id)}` }, depth ? row.id.split('/').at(-1) : row.id);
  const cell = el('th', { scope: 'row' }, name);
  cell.style.paddingInlineStart = `${0.75 + 1.25 * depth}rem`;
  return el(
    'tr',
    { data: { run: row.id } },
    cell,
    el('td', { data: { label: 'State' } }, stateMark(row.state)),
    el('td', { data: { label: 'System' } }, row.recipe ?? row.system ?? '–'),
    el('td', { data: { label: 'Step' } }, progress(row)),
    el(
      'td',
      { class: 'number', data: { label: 'Loss' }, title: row.loss?.name ?? '' },
      row.loss ? figure(row.loss.value) : '–',
      row.loss && el('small', {}, row.loss.name),
    ),
    el('td', { class: 'number', data: { label: 'Updated' } }, ago(row.updated)),
    el('td', { class: 'number', data: { label: 'Size' } }, bytes(row.size_bytes)),
  );
}

export async function runsView({ page, studio }) {
  const stop = new AbortController();
  const problems = problemPlace();
  const summary = el('p', { class: 'summary' });
  const body = el('tbody');
  const table = el(
    'table',
    { class: 'runs' },
    el('caption', { class: 'unseen' }, 'Runs, the newest first'),
    el(
      'thead',
      {},
      el(
        'tr',
        {},
        ['Run', 'State', 'Recipe', 'Step', 'Loss', 'Updated', 'Size'].map((title, index) =>
          el('th', { scope: 'col', class: index > 3 && 'number' }, title),
        ),
      ),
    ),
    body,
  );
  const place = el('div', { class: 'scroll' }, table);
  const search = el('input', { type: 'search', placeholder: 'name, recipe or state', oninput: () => draw() });
  const start =
    studio.control && el('button', { type: 'button', class: 'primary', onclick: () => startDialog() }, 'Start a run');
  replace(
    page,
    el(
      'div',
      { class: 'title' },
      el('h1', {}, 'Runs'),
      summary,
      el('label', { class: 'field inline' }, el('span', {}, 'Filter'), search),
      start,
    ),
    problems.element,
    place,
  );

  let rows = [];
  let states = '';
  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const shown = inOrder(
      rows.filter((row) => `${row.id} ${row.system} ${row.recipe ?? ''} ${row.state}`.toLowerCase().includes(wanted)),
    );
    const training = rows.filter((row) => row.state === 'training').length;
    const size = rows.filter((row) => !row.parent).reduce((sum, row) => sum + (row.size_bytes ?? 0), 0);
    summary.textContent = rows.length
      ? `${rows.length} ${rows.length === 1 ? 'run' : 'runs'}, ${training} in training, ${bytes(size)}`
      : '';
    if (!rows.length) {
      replace(
        place,
        empty(
          'No runs in this folder yet',
          el('p', {}, 'A run is a folder that a training writes. Start one, and it appears here by itself:'),
          command('madrigal train soundstream/tiny data=FOLDER-OF-RECORDINGS --run runs/first'),
        ),
      );
      return;
    }
    const focused = document.activeElement?.closest?.('tr')?.dataset.run;
    replace(place, table);
    replace(
      body,
      shown.length
        ? shown.map(line)
        : el('tr', {}, el('td', { colspan: 7, class: 'muted' }, 'No run has that in its name, recipe or state.')),
    );
    if (focused) body.querySelector(`tr[data-run="${CSS.escape(focused)}"] a`)?.focus();
  }

  let timer = null;
  const update = async () => {
    try {
      rows = (await get('/api/runs', stop.signal)).runs;
      problems.clear();
      draw();
      const now = rows.map((row) => `${row.id} is ${row.state}`);
      const changed = now.filter((sentence) => states && !states.includes(sentence));
      if (changed.length) announce(changed.join(', '));
      states = now.join('\n');
    } catch (error) {
      if (error.name === 'AbortError') return;
      problems.show(error);
    }
    timer = setTimeout(() => (document.hidden ? (timer = setTimeout(update, POLL)) : update()), POLL);
  };
  await update();
  return () => {
    clearTimeout(timer);
    stop.abort();
  };
}
