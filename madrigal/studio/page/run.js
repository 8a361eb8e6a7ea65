// One run: its curves, samples, recipe, difference to another, and what it holds on disk.
import { get, runPath } from './api.js';
import { controls } from './control.js';
import { curvesPanel } from './curves.js';
import { diffPanel } from './diff.js';
import { el, empty, replace, tabs } from './dom.js';
import { ago, bytes, count, figure } from './format.js';
import { problem } from './problem.js';
import { progress, stateMark } from './runs.js';
import { samplesPanel } from './samples.js';

const POLL = 3000;

function recipePanel(place, run) {
  replace(
    place,
    (run.recipe_text ?? run.recipe)
      ? el('pre', { class: 'recipe', tabindex: '0', 'aria-label': 'Recipe' }, run.recipe_text ?? run.recipe)
      : empty('No recipe', el('p', {}, 'recipe.yaml is missing or cannot be read.')),
    run.environment && Object.keys(run.environment).length
      ? el(
          'details',
          {},
          el('summary', {}, 'Environment'),
          el(
            'dl',
            { class: 'pairs' },
            Object.entries(run.environment).map(([name, value]) => [
              el('dt', {}, name),
              el('dd', { class: 'number' }, typeof value === 'object' ? JSON.stringify(value) : String(value)),
            ]),
          ),
        )
      : null,
  );
}

function diskPanel(place, run) {
  const list = run.checkpoints ?? [];
  const most = Math.max(1, ...list.map((checkpoint) => checkpoint.size_bytes));
  replace(
    place,
    el(
      'p',
      {},
      'The whole run: ',
      el('strong', { class: 'number' }, bytes(run.size_bytes)),
      list.length
        ? `, of it ${bytes(list.reduce((sum, checkpoint) => sum + checkpoint.size_bytes, 0))} in ${list.length} ${list.length === 1 ? 'checkpoint' : 'checkpoints'}.`
        : '.',
    ),
    list.length
      ? el(
          'div',
          { class: 'scroll' },
          el(
            'table',
            { class: 'disk' },
            el('caption', { class: 'unseen' }, 'Checkpoints'),
            el(
              'thead',
              {},
              el(
                'tr',
                {},
                el('th', { scope: 'col', class: 'number' }, 'Step'),
                el('th', { scope: 'col', class: 'number' }, 'Size'),
                el('th', { scope: 'col' }, el('span', { class: 'unseen' }, 'Share')),
              ),
            ),
            el(
              'tbody',
              {},
              [...list]
                .sort((a, b) => b.step - a.step)
                .map((checkpoint) => {
                  const fill = el('span', { class: 'fill' });
                  fill.style.width = `${(100 * checkpoint.size_bytes) / most}%`;
                  return el(
                    'tr',
                    {},
                    el('th', { scope: 'row', class: 'number' }, count(checkpoint.step)),
                    el('td', { class: 'number' }, bytes(checkpoint.size_bytes)),
                    el('td', { class: 'wide' }, el('span', { class: 'track', 'aria-hidden': 'true' }, fill)),
                  );
                }),
            ),
          ),
        )
      : empty('No checkpoint yet', el('p', {}, 'The first is saved at plan.save_model_every steps.')),
  );
}

export async function runView({ page, studio, rest: [id, part = 'curves'] }) {
  const stop = new AbortController();
  const [{ runs }, first] = await Promise.all([get('/api/runs', stop.signal), get(runPath(id), stop.signal)]);
  let run = first;
  let leave = null;
  const facts = el('div', { class: 'facts' });
  const control = el('div', { class: 'controls' });
  const drawFacts = () => {
    const fact = (name, value) => el('div', {}, el('dt', {}, name), el('dd', {}, value));
    replace(
      facts,
      el(
        'dl',
        {},
        fact('State', stateMark(run.state)),
        fact('System', run.system ?? '–'),
        fact('Step', progress(run)),
        run.loss && fact(run.loss.name, el('span', { class: 'number' }, figure(run.loss.value))),
        fact('Updated', el('span', { class: 'number' }, ago(run.updated))),
        fact('Size', el('span', { class: 'number' }, bytes(run.size_bytes))),
      ),
    );
  };
  let controlled = '';
  const drawControl = () => {
    const key = `${run.state} ${run.can_resume}`;
    if (!studio.control || run.controllable === false || key === controlled) return;
    controlled = key;
    replace(control, controls(run, update));
  };
  const panels = {
    curves: (place) =>
      curvesPanel(place, id, runs, { live: () => run.state === 'training' || Date.now() / 1000 - run.updated < 120 }),
    samples: (place) => samplesPanel(place, id, () => run),
    recipe: (place) => recipePanel(place, run),
    diff: (place) => diffPanel(place, id, runs),
    disk: (place) => diskPanel(place, run),
  };
  let turn = 0;
  const { bar, panel, start } = tabs(
    'Parts of the run',
    [
      ['curves', 'Curves'],
      ['samples', 'Samples'],
      ['recipe', 'Recipe'],
      ['diff', 'Compare recipes'],
      ['disk', 'Disk'],
    ],
    {
      chosen: panels[part] ? part : 'curves',
      async onchoose(name, place) {
        const mine = ++turn;
        leave?.();
        leave = null;
        history.replaceState(null, '', `#/run/${encodeURIComponent(id)}${name === 'curves' ? '' : `/${name}`}`);
        const inside = el('div');
        replace(place, inside);
        try {
          const left = await panels[name](inside);
          if (mine === turn) leave = left ?? null;
          else left?.();
        } catch (error) {
          if (error.name !== 'AbortError') replace(inside, problem(error));
        }
      },
    },
  );
  const parents = id.split('/').slice(0, -1);
  replace(
    page,
    el(
      'nav',
      { class: 'crumbs', 'aria-label': 'Where this is' },
      el('a', { href: '#/runs' }, 'Runs'),
      parents.map((name, index) => {
        const parent = parents.slice(0, index + 1).join('/');
        return [
          ' / ',
          runs.some((row) => row.id === parent) ? el('a', { href: `#/run/${encodeURIComponent(parent)}` }, name) : name,
        ];
      }),
    ),
    el('div', { class: 'title' }, el('h1', {}, id.split('/').at(-1)), control),
    facts,
    bar,
    panel,
  );
  drawFacts();
  drawControl();
  start();

  let timer = null;
  async function update() {
    clearTimeout(timer);
    try {
      if (!document.hidden) run = await get(runPath(id), stop.signal);
      drawFacts();
      drawControl();
    } catch (error) {
      if (error.name === 'AbortError') return;
    }
    timer = setTimeout(update, POLL);
  }
  timer = setTimeout(update, POLL);
  return () => {
    clearTimeout(timer);
    stop.abort();
    turn += 1;
    leave?.();
  };
}
