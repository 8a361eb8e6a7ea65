// Start, stop and resume: a training is a process of its own, the studio only asks for it.
import { get, post, runPath } from './api.js';
import { announce, el, field } from './dom.js';
import { problemPlace } from './problem.js';

function dialog(title, ...content) {
  const id = `dialog-${title.replaceAll(' ', '-')}`;
  const made = el('dialog', { 'aria-labelledby': id }, el('h2', { id }, title), ...content);
  made.addEventListener('close', () => made.remove());
  document.body.append(made);
  made.showModal();
  return made;
}

export async function startDialog() {
  const problems = problemPlace();
  const recipes = el('input', {
    name: 'recipe',
    list: 'recipes',
    required: true,
    placeholder: 'soundstream/cpu',
    autocomplete: 'off',
  });
  const names = el('datalist', { id: 'recipes' });
  const name = el('input', { name: 'name', required: true, placeholder: 'codec', autocomplete: 'off' });
  const overrides = el('textarea', {
    name: 'overrides',
    rows: 4,
    placeholder: 'data=FOLDER\nplan.lr=3e-4',
    spellcheck: 'false',
  });
  const go = el('button', { class: 'primary' }, 'Start');
  const form = el(
    'form',
    {},
    field('Recipe', recipes, 'A name such as soundstream/cpu.'),
    names,
    field('Name of the run', name, 'The folder that it gets below the runs.'),
    field(
      'Changes, one a line',
      overrides,
      'key=value, the words of the recipe. data= must lie below a folder that the server allows.',
    ),
    problems.element,
    el('div', { class: 'buttons' }, el('button', { type: 'button', onclick: () => made.close() }, 'Cancel'), go),
  );
  const made = dialog('Start a run', form);
  get('/api/recipes').then(
    (answer) =>
      names.append(...(answer.recipes ?? answer).map((recipe) => el('option', { value: recipe.name ?? recipe }))),
    (error) => problems.show(error),
  );
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    problems.clear();
    go.disabled = true;
    try {
      const lines = overrides.value
        .split('\n')
        .map((line) => line.trim())
        .filter(Boolean);
      const row = await post('/api/runs', { recipe: recipes.value.trim(), name: name.value.trim(), overrides: lines });
      made.close();
      announce(`${row.id} has started.`);
      location.hash = `#/run/${encodeURIComponent(row.id)}`;
    } catch (error) {
      problems.show(error, form);
    } finally {
      go.disabled = false;
    }
  });
}

/** The buttons of a run's page; `changed` is called when one of them did something. */
export function controls(row, changed) {
  const problems = problemPlace();
  const act = (verb, said) => async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    problems.clear();
    try {
      await post(runPath(row.id, `/${verb}`), {});
      announce(said);
      changed();
    } catch (error) {
      problems.show(error);
      button.disabled = false;
    }
  };
  const buttons = [];
  if (row.state === 'training' && row.can_stop !== false)
    buttons.push(
      el('button', { type: 'button', onclick: act('stop', 'The run was asked to save and stop.') }, 'Save and stop'),
    );
  if (row.state !== 'training' && row.can_resume)
    buttons.push(
      el('button', { type: 'button', class: 'primary', onclick: act('resume', 'The run goes on.') }, 'Resume'),
    );
  return [el('div', { class: 'buttons' }, buttons), problems.element];
}
