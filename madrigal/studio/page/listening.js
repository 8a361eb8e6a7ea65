// Listening tests: those there are, a new one from runs, and what came out.
import { get, post, request } from './api.js';
import { announce, download, el, empty, field, replace } from './dom.js';
import { day } from './format.js';
import { problem, problemPlace } from './problem.js';

export const KINDS = { ab: 'A/B', mushra: 'MUSHRA' };

/** A bar from low to high with its mean, on a scale from 0 to `most`. */
function interval([low, high], mean, most) {
  const range = el('span', { class: 'range' });
  const dot = el('span', { class: 'dot' });
  range.style.left = `${(100 * low) / most}%`;
  range.style.width = `${Math.max(0.5, (100 * (high - low)) / most)}%`;
  dot.style.left = `${(100 * mean) / most}%`;
  return el('span', { class: 'interval', 'aria-hidden': 'true' }, el('span', { class: 'middle' }), range, dot);
}

function pairTable(pairs) {
  return el(
    'div',
    { class: 'scroll' },
    el(
      'table',
      {},
      el('caption', { class: 'unseen' }, 'Preference by pair of runs'),
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          ['Run', 'Against', 'Preferred', 'Other preferred', 'No difference', 'Preference', ''].map((title, index) =>
            el('th', { scope: 'col', class: index > 1 && index < 6 ? 'number' : '' }, title),
          ),
        ),
      ),
      el(
        'tbody',
        {},
        pairs.map((pair) => {
          const known = pair.preference !== null && pair.preference !== undefined;
          return el(
            'tr',
            {},
            el('th', { scope: 'row' }, pair.left),
            el('td', {}, pair.right),
            el('td', { class: 'number' }, pair.left_wins),
            el('td', { class: 'number' }, pair.right_wins),
            el('td', { class: 'number' }, pair.none),
            el(
              'td',
              { class: 'number' },
              known
                ? `${Math.round(100 * pair.preference)} % (${Math.round(100 * pair.interval[0])} to ${Math.round(100 * pair.interval[1])})`
                : '–',
            ),
            el('td', { class: 'wide' }, known && interval(pair.interval, pair.preference, 1)),
          );
        }),
      ),
    ),
  );
}

function scoreTable(scores) {
  return el(
    'div',
    { class: 'scroll' },
    el(
      'table',
      {},
      el('caption', { class: 'unseen' }, 'Mean score by run'),
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          ['Run', 'Mean', '95 % interval', 'Scores', ''].map((title, index) =>
            el('th', { scope: 'col', class: index && index < 4 ? 'number' : '' }, title),
          ),
        ),
      ),
      el(
        'tbody',
        {},
        [...scores]
          .sort((a, b) => b.mean - a.mean)
          .map((score) =>
            el(
              'tr',
              {},
              el('th', { scope: 'row' }, score.run === 'reference' ? 'hidden reference' : score.run),
              el('td', { class: 'number' }, score.mean.toFixed(1)),
              el(
                'td',
                { class: 'number' },
                score.interval ? `${score.interval[0].toFixed(1)} to ${score.interval[1].toFixed(1)}` : '–',
              ),
              el('td', { class: 'number' }, score.n),
              el('td', { class: 'wide' }, score.interval && interval(score.interval, score.mean, 100)),
            ),
          ),
      ),
    ),
  );
}

export async function results(place, id) {
  try {
    const answer = await get(`/api/listening/${encodeURIComponent(id)}/results`);
    const tables = [
      answer.pairs?.length ? pairTable(answer.pairs) : null,
      answer.scores?.length ? scoreTable(answer.scores) : null,
    ];
    const save = el(
      'button',
      {
        type: 'button',
        onclick: async () =>
          download(
            await (await request(`/api/listening/${encodeURIComponent(id)}/results.jsonl`)).blob(),
            `${id}.jsonl`,
          ),
      },
      'Download every answer',
    );
    replace(
      place,
      el(
        'p',
        { class: 'number' },
        `${answer.answers} ${answer.answers === 1 ? 'answer' : 'answers'} of ${answer.listeners} ${answer.listeners === 1 ? 'listener' : 'listeners'}`,
      ),
      answer.answers ? tables : el('p', { class: 'muted' }, 'Nobody has taken it yet.'),
      answer.answers
        ? el(
            'div',
            { class: 'buttons' },
            save,
            el('span', { class: 'muted' }, `also in ${answer.file ?? `listening/${id}.jsonl`} beside the runs`),
          )
        : null,
    );
  } catch (error) {
    replace(place, problem(error));
  }
}

function createForm(runs, created) {
  const problems = problemPlace();
  const usable = runs.filter((row) => row.has_samples);
  if (usable.length < 2)
    return el(
      'p',
      { class: 'muted' },
      'A test needs two runs with samples of the same recordings; there are not two here yet.',
    );
  const title = el('input', {
    name: 'title',
    required: true,
    placeholder: 'Codec at 3 and at 6 kbps',
    autocomplete: 'off',
  });
  const kind = el(
    'fieldset',
    { class: 'choices' },
    el('legend', {}, 'Kind'),
    Object.entries({
      ab: ['A/B', 'Which of two sounds better?'],
      mushra: ['MUSHRA', 'Each from 0 to 100, the original hidden among them.'],
    }).map(([value, [name, hint]], index) =>
      el(
        'label',
        {},
        el('input', { type: 'radio', name: 'kind', value, checked: index === 0 }),
        el('span', {}, name, el('small', {}, hint)),
      ),
    ),
  );
  const which = el(
    'fieldset',
    { class: 'choices' },
    el('legend', {}, 'Runs'),
    usable.map((row) =>
      el(
        'label',
        {},
        el('input', { type: 'checkbox', name: 'runs', value: row.id }),
        el('span', {}, row.id, el('small', {}, `${row.recipe ?? row.system} at step ${row.step}`)),
      ),
    ),
  );
  const form = el(
    'form',
    {},
    field('Title', title),
    kind,
    which,
    problems.element,
    el('div', { class: 'buttons' }, el('button', { class: 'primary' }, 'Make the test')),
  );
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    problems.clear();
    const chosen = [...form.querySelectorAll('[name=runs]:checked')].map((box) => box.value);
    if (chosen.length < 2) {
      problems.show(new Error('Choose two runs or more.'));
      return;
    }
    try {
      const row = await post('/api/listening', {
        kind: form.querySelector('[name=kind]:checked').value,
        title: title.value.trim(),
        runs: chosen,
      });
      announce('The test is made.');
      created(row);
    } catch (error) {
      problems.show(error, form);
    }
  });
  return form;
}

export async function listeningView({ page, rest: [open] }) {
  const [{ tests }, { runs }] = await Promise.all([get('/api/listening'), get('/api/runs')]);
  const card = (test) => {
    const place = el('div', { class: 'results' });
    const details = el('details', { open: test.id === open }, el('summary', {}, 'Results'), place);
    const load = () => details.open && results(place, test.id);
    details.addEventListener('toggle', load);
    return el(
      'article',
      { class: 'card test', data: { test: test.id } },
      el(
        'div',
        { class: 'title' },
        el('h2', {}, test.title),
        el('span', { class: 'kind' }, KINDS[test.kind] ?? test.kind),
        el(
          'a',
          {
            class: 'button primary',
            href: `#/listen/${encodeURIComponent(test.id)}`,
            'aria-label': `Take ${test.title}`,
          },
          'Take the test',
        ),
      ),
      el(
        'p',
        { class: 'muted number' },
        [`${test.trials} ${test.trials === 1 ? 'trial' : 'trials'}`, (test.runs ?? []).join(', '), day(test.created)]
          .filter(Boolean)
          .join(' · '),
      ),
      details,
    );
  };
  replace(
    page,
    el('h1', {}, 'Listening'),
    el(
      'div',
      { class: 'stack' },
      tests.length
        ? tests.map(card)
        : empty(
            'No test yet',
            el(
              'p',
              {},
              'Figures say what changed; ears say whether it matters. Make a blind test from the samples of two or more runs:',
            ),
          ),
      el(
        'details',
        { class: 'card', open: !tests.length },
        el('summary', {}, 'A new test'),
        createForm(runs, (row) => {
          location.hash = `#/listen/${encodeURIComponent(row.id)}`;
        }),
      ),
    ),
  );
}
