// Music from words: several tries, the one that fits the words best is returned.
import { request } from './api.js';
import { announce, download, el, field, replace, slider } from './dom.js';
import { seconds, slug } from './format.js';
import { freshSeed, missing, modelField, ofKind } from './models.js';
import { Player } from './player.js';
import { problemPlace } from './problem.js';
import { decoded } from './wav.js';
import { stillWave } from './waveform.js';

export async function musicView({ page, studio }) {
  const models = ofKind(studio, 'music');
  if (!models.length) {
    replace(page, el('h1', {}, 'Music'), missing('music'));
    return undefined;
  }
  const problems = problemPlace();
  const model = modelField(models);
  const prompt = el('textarea', {
    name: 'prompt',
    rows: 3,
    required: true,
    placeholder: 'a slow piano piece',
    'aria-keyshortcuts': 'Control+Enter',
  });
  const length = slider('Length', {
    name: 'seconds',
    min: 1,
    max: studio.limits.music_seconds,
    step: 1,
    value: 5,
    show: (value) => `${value} s`,
  });
  const n = slider('Tries', { name: 'n', min: 1, max: 8, step: 1, value: 1 });
  const seed = el('input', { type: 'number', name: 'seed', min: 0, step: 1, placeholder: 'a new one each time' });
  const go = el('button', { class: 'primary' }, 'Play ', el('kbd', {}, 'Ctrl Enter'));
  const halt = el('button', { type: 'button', disabled: true, onclick: () => stop?.abort() }, 'Stop');
  const state = el('p', { class: 'muted number', role: 'status' });
  const takes = el('section', { class: 'takes', 'aria-label': 'Music' });
  const players = [];
  let stop = null;
  async function play() {
    problems.clear();
    stop = new AbortController();
    go.disabled = true;
    halt.disabled = false;
    state.textContent = 'Composing …';
    const used = seed.value === '' ? freshSeed() : Number(seed.value);
    const words = prompt.value.trim();
    try {
      const response = await request('/v1/audio/music', {
        method: 'POST',
        json: {
          model: model.select.value,
          prompt: words,
          seconds: length.value(),
          n: n.value(),
          seed: used,
          response_format: 'wav',
        },
        signal: stop.signal,
      });
      const wav = await response.blob();
      const sound = await decoded(wav);
      const player = new Player({ label: words, source: wav, picture: stillWave(sound) });
      players.push(player);
      takes.prepend(
        el(
          'article',
          { class: 'take' },
          el('p', { class: 'said' }, words),
          player.element,
          el('p', { class: 'number muted' }, `seed ${used} · ${seconds(sound.seconds)}`),
          el(
            'div',
            { class: 'buttons small' },
            el('button', { type: 'button', onclick: () => download(wav, `${slug(words)}.wav`) }, 'wav'),
          ),
        ),
      );
      state.textContent = '';
      announce('The music is there.');
      player.play();
    } catch (error) {
      state.textContent = error.name === 'AbortError' ? 'Stopped.' : '';
      problems.show(error, form);
    } finally {
      go.disabled = false;
      halt.disabled = true;
    }
  }
  const form = el(
    'form',
    { class: 'card' },
    field('Prompt', prompt),
    el('div', { class: 'tools grow' }, length.element, n.element, field('Seed', seed), model.element),
    el('p', { class: 'hint' }, 'Of several tries the one that fits the words best is kept.'),
    el('div', { class: 'buttons' }, go, halt, state),
    problems.element,
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    play();
  });
  form.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (form.reportValidity() && !go.disabled) play();
  });
  replace(page, el('h1', {}, 'Music'), el('div', { class: 'stack' }, form, takes));
  return () => {
    stop?.abort();
    for (const player of players) player.release();
  };
}
