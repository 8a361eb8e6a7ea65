// Where the recipes of two runs differ.
import { get } from './api.js';
import { el, empty, replace } from './dom.js';
import { problem } from './problem.js';

export function diffPanel(place, id, runs) {
  const others = runs.filter((row) => row.id !== id);
  if (!others.length) {
    replace(place, empty('No other run to compare with'));
    return;
  }
  const out = el('div', { 'aria-live': 'polite' });
  const select = el(
    'select',
    { onchange: () => show() },
    others.map((row) => el('option', { value: row.id }, row.id)),
  );
  const own = runs.find((row) => row.id === id);
  const alike = others.find((row) => own && row.system === own.system);
  if (alike) select.value = alike.id;
  async function show() {
    try {
      const { rows } = await get(`/api/diff?left=${encodeURIComponent(id)}&right=${encodeURIComponent(select.value)}`);
      const cell = (value) =>
        value === null || value === undefined
          ? el('td', { class: 'muted' }, 'not there')
          : el('td', { class: 'number' }, String(value));
      replace(
        out,
        rows.length
          ? el(
              'div',
              { class: 'scroll' },
              el(
                'table',
                { class: 'diff' },
                el('caption', { class: 'unseen' }, 'Keys that differ'),
                el(
                  'thead',
                  {},
                  el(
                    'tr',
                    {},
                    el('th', { scope: 'col' }, `${rows.length} ${rows.length === 1 ? 'key differs' : 'keys differ'}`),
                    el('th', { scope: 'col' }, id),
                    el('th', { scope: 'col' }, select.value),
                  ),
                ),
                el(
                  'tbody',
                  {},
                  rows.map((row) => el('tr', {}, el('th', { scope: 'row' }, row.key), cell(row.left), cell(row.right))),
                ),
              ),
            )
          : el('p', {}, 'The two recipes are the same.'),
      );
    } catch (error) {
      replace(out, problem(error));
    }
  }
  replace(
    place,
    el('div', { class: 'tools' }, el('label', { class: 'field' }, el('span', {}, 'Compare with'), select)),
    out,
  );
  show();
}
