// What a form has that makes something of words: a prompt, a seed, a model, and buttons to begin and to stop.
import { el, field } from './dom.js';
import { freshSeed, modelField } from './models.js';
import { problemPlace } from './problem.js';

/** `doing` is shown while it works; `onbusy` hears when that begins and ends. */
export function prompting({ models, placeholder, verb, doing, onbusy }) {
  const problems = problemPlace();
  const model = modelField(models);
  const prompt = el('textarea', {
    name: 'prompt',
    rows: 3,
    required: true,
    placeholder,
    'aria-keyshortcuts': 'Control+Enter',
  });
  const seed = el('input', { type: 'number', name: 'seed', min: 0, step: 1, placeholder: 'a new one each time' });
  const go = el('button', { class: 'primary' }, `${verb} `, el('kbd', {}, 'Ctrl Enter'));
  const halt = el('button', { type: 'button', disabled: true, onclick: () => stop.abort() }, 'Stop');
  const state = el('p', { class: 'muted number', role: 'status' });
  const form = el('form', { class: 'card' });
  let stop = null;
  let busy = false;

  function setBusy(on) {
    busy = on;
    go.disabled = on;
    halt.disabled = !on;
    onbusy?.(on);
  }

  /** `make(signal, seed)` does it, one at a time, and gives what is said when it is done. */
  async function run(make) {
    if (busy) return;
    problems.clear();
    stop = new AbortController();
    setBusy(true);
    state.textContent = doing;
    try {
      state.textContent = await make(stop.signal, seed.value === '' ? freshSeed() : Number(seed.value));
    } catch (error) {
      state.textContent = error.name === 'AbortError' ? 'Stopped.' : '';
      problems.show(error, form);
    } finally {
      setBusy(false);
    }
  }

  /** The form, with settings between the prompt and the buttons; to send it is to `run(make)`. */
  function filled(make, ...settings) {
    form.append(
      field('Prompt', prompt),
      ...settings,
      el('div', { class: 'buttons' }, go, halt, state),
      problems.element,
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      run(make);
    });
    form.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (form.reportValidity()) run(make);
    });
    return form;
  }

  return {
    filled,
    run,
    problems,
    fields: [field('Seed', seed), model.element],
    words: () => prompt.value.trim(),
    model: () => model.select.value,
    isBusy: () => busy,
    leave: () => stop?.abort(),
  };
}
