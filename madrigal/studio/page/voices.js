// Type and hear: speech is played as it comes, and kept as a take with its seed.
import { formOf, get, remove, request } from './api.js';
import { announce, download, el, field, replace, slider } from './dom.js';
import { seconds, slug, wait } from './format.js';
import { freshSeed, missing, ofKind } from './models.js';
import { Player } from './player.js';
import { problemPlace } from './problem.js';
import { recordButton } from './recorder.js';
import { StreamPlayer } from './stream.js';
import { decoded, floatsOfPcm, forServer } from './wav.js';
import { stillWave } from './waveform.js';

const FORMATS = ['wav', 'mp3', 'flac', 'opus'];
const USUAL_RATE = 24_000;

/** What has been said in this tab: the text, the player, the figures, and files of it. */
function takeOf({ speech, formats, pcm, wav, rate, first }) {
  const length = pcm.byteLength / 2 / rate;
  const player = new Player({
    label: `“${speech.input.slice(0, 60)}”`,
    source: wav,
    picture: stillWave({ samples: floatsOfPcm(pcm), rate }),
  });
  const problems = problemPlace();
  const name = slug(speech.input);
  const save = async (format, button) => {
    if (format === 'wav') {
      download(wav, `${name}.wav`);
      return;
    }
    button.disabled = true;
    problems.clear();
    try {
      // The same seed says the same again; only the container is another.
      const response = await request('/v1/audio/speech', {
        method: 'POST',
        json: { ...speech, response_format: format },
      });
      download(await response.blob(), `${name}.${format}`);
    } catch (error) {
      problems.show(error);
    } finally {
      button.disabled = false;
    }
  };
  const facts = [
    speech.voice,
    `seed ${speech.seed}`,
    seconds(length),
    first === null ? null : `first sound after ${wait(first)}`,
  ].filter(Boolean);
  const element = el(
    'article',
    {
      class: 'take',
      data: {
        seconds: length.toFixed(4),
        bytes: String(pcm.byteLength),
        first: first === null ? '' : String(Math.round(first)),
      },
    },
    el('p', { class: 'said' }, speech.input),
    player.element,
    el('p', { class: 'number muted facts-line' }, facts.join(' · ')),
    el(
      'div',
      { class: 'buttons small', role: 'group', 'aria-label': 'Download' },
      formats.map((format) =>
        el('button', { type: 'button', onclick: (event) => save(format, event.currentTarget) }, format),
      ),
    ),
    problems.element,
  );
  return { element, player };
}

/** `onpick` hears which voice is chosen. */
function voiceList(onpick) {
  const select = el('select', { name: 'voice' });
  const drop = el('button', { type: 'button', class: 'quiet small', hidden: true }, 'Remove this voice');
  let voices = [];
  const problems = problemPlace();
  const picked = () => voices[Number(select.value)];
  const show = () => {
    drop.hidden = !picked()?.uploaded;
    onpick(picked());
  };
  select.addEventListener('change', show);
  async function update(choose) {
    ({ voices } = await get('/v1/audio/voices'));
    const several = new Set(voices.map((voice) => voice.model)).size > 1;
    // Each model has a default; that of the first is the studio's.
    const first = voices.findIndex((voice) => (choose ? voice.id === choose : voice.default));
    replace(
      select,
      voices.map((voice, index) =>
        el(
          'option',
          { value: index, selected: index === first },
          `${voice.name}${several ? `, ${voice.model}` : ''}${voice.uploaded ? ' (yours)' : ''}`,
        ),
      ),
    );
    show();
  }
  drop.addEventListener('click', async () => {
    problems.clear();
    try {
      await remove(`/v1/audio/voices/${encodeURIComponent(picked().id)}?model=${encodeURIComponent(picked().model)}`);
      announce('The voice is removed.');
      await update();
    } catch (error) {
      problems.show(error);
    }
  });
  return {
    element: el('div', { class: 'voice-choice' }, field('Voice', select), drop, problems.element),
    select,
    update,
    picked,
  };
}

/** A new voice by a prompt of a few seconds. */
function newVoice(studio, added) {
  const problems = problemPlace();
  const [least, most] = studio.limits.prompt_seconds;
  const file = el('input', { type: 'file', name: 'file', accept: 'audio/*,.wav,.flac,.mp3,.ogg,.opus' });
  const name = el('input', {
    name: 'name',
    required: true,
    pattern: '[a-z0-9][a-z0-9\\-]{0,40}',
    placeholder: 'my-voice',
    autocomplete: 'off',
    title: 'small letters, figures and hyphens',
  });
  const text = el('textarea', { name: 'text', rows: 2 });
  const heard = el('div', { class: 'heard' });
  const go = el('button', { class: 'primary' }, 'Add the voice');
  let prompt = null;
  let player = null;
  let released = false;
  const forget = () => {
    player?.release();
    player = null;
    prompt = null;
    replace(heard);
  };
  const take = async (given) => {
    problems.clear();
    forget();
    try {
      const file = await forServer(given);
      const sound = await decoded(file);
      if (released) return;
      forget(); // another may have been chosen meanwhile
      prompt = file;
      player = new Player({ label: 'your prompt', source: prompt, picture: stillWave(sound) });
      replace(heard, player.element);
      if (sound.seconds < least || sound.seconds > most)
        problems.show(
          new Error(`The prompt is ${sound.seconds.toFixed(1)} s long; it should be ${least} to ${most} s.`),
        );
    } catch (error) {
      problems.show(error);
    }
  };
  const recording = recordButton({ done: take, failed: (error) => problems.show(error), longest: most });
  file.addEventListener('change', () => file.files[0] && take(file.files[0]));
  const form = el(
    'form',
    {},
    el('div', { class: 'buttons' }, field('A recording', file), recording.element),
    heard,
    field('Name', name),
    field('What is said in it', text, 'Optional; with it the voice is followed more closely.'),
    problems.element,
    el('div', { class: 'buttons' }, go),
  );
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (!prompt) {
      problems.show(new Error('Choose or record a prompt first.'));
      file.focus();
      return;
    }
    go.disabled = true;
    problems.clear();
    try {
      const response = await request('/v1/audio/voices', {
        method: 'POST',
        form: formOf({ name: name.value, file: prompt, text: text.value.trim() }),
      });
      const voice = await response.json();
      announce(`The voice ${voice.id} is there.`);
      form.reset();
      forget();
      added(voice.id);
    } catch (error) {
      problems.show(error, form);
    } finally {
      go.disabled = false;
    }
  });
  return {
    element: el('details', { class: 'card' }, el('summary', {}, 'A voice of your own'), form),
    release() {
      released = true;
      recording.release();
      forget();
    },
  };
}

export async function voicesView({ page, studio }) {
  const models = ofKind(studio, 'speech');
  if (!models.length) {
    replace(page, el('h1', {}, 'Voices'), missing('speech'));
    return undefined;
  }
  const problems = problemPlace();
  const most = studio.limits.text_chars;
  const input = el('textarea', {
    name: 'input',
    rows: 5,
    maxlength: most,
    required: true,
    placeholder: 'Type what is to be said.',
    'aria-keyshortcuts': 'Control+Enter',
  });
  input.value = sessionStorage.getItem('madrigal-text') ?? '';
  const left = el('small', { class: 'number', 'aria-hidden': 'true' });
  const countLeft = () => {
    left.textContent = `${input.value.length} / ${most}`;
    sessionStorage.setItem('madrigal-text', input.value);
  };
  input.addEventListener('input', countLeft);
  countLeft();
  const own = models[0].defaults ?? {};
  const ownOf = (value, at, digits = 0) => ({
    at: value ?? at,
    text: value === undefined || value === null ? 'the voice’s own' : value.toFixed(digits),
  });
  const steps = slider('Steps', { name: 'steps', min: 1, max: 64, step: 1, own: ownOf(own.steps, 16) });
  const guidance = slider('Guidance', {
    name: 'cond_scale',
    min: 0,
    max: 4,
    step: 0.1,
    own: ownOf(own.cond_scale, 1, 1),
    show: (value) => value.toFixed(1),
  });
  const voices = voiceList((voice) => {
    const isDistilled = Boolean(models.find((model) => model.id === voice?.model)?.distilled);
    for (const each of [steps, guidance]) each.fix(isDistilled);
  });
  const speed = slider('Speed', {
    name: 'speed',
    min: 0.5,
    max: 2,
    step: 0.05,
    value: 1,
    show: (value) => `${value.toFixed(2)} ×`,
  });
  const seed = el('input', {
    type: 'number',
    name: 'seed',
    min: 0,
    max: 2 ** 31 - 1,
    step: 1,
    placeholder: 'a new one each time',
  });
  const speak = el('button', { class: 'primary', type: 'submit' }, 'Speak ', el('kbd', {}, 'Ctrl Enter'));
  const halt = el('button', { type: 'button', disabled: true, onclick: () => stop?.() }, 'Stop ', el('kbd', {}, 'Esc'));
  const state = el('p', { class: 'number muted now', role: 'status' });
  const takes = el('section', { class: 'takes', 'aria-label': 'What was said' });
  const players = [];
  let stop = null;

  async function say() {
    stop?.();
    problems.clear();
    // Before the list of voices is there, the model speaks in its own.
    const voice = voices.picked() ?? { model: models[0].id, id: 'default' };
    const speech = {
      model: voice.model,
      voice: voice.id,
      input: input.value.trim(),
      seed: seed.value === '' ? freshSeed() : Number(seed.value),
      speed: speed.value(),
      steps: steps.value(),
      cond_scale: guidance.value(),
    };
    const abort = new AbortController();
    // Made before the sound is there: to open the sound card takes its time too.
    let stream = new StreamPlayer(USUAL_RATE);
    let cut = false;
    const mine = () => {
      cut = true;
      abort.abort();
      stream.pause();
    };
    stop = mine;
    halt.disabled = false;
    state.textContent = 'Waiting for the first sound …';
    const began = performance.now();
    try {
      const response = await request('/v1/audio/speech', {
        method: 'POST',
        json: { ...speech, response_format: 'pcm' },
        signal: abort.signal,
      });
      const rate = Number(response.headers.get('X-Madrigal-Sample-Rate')) || USUAL_RATE;
      if (rate !== stream.rate) stream = new StreamPlayer(rate);
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        stream.push(value);
        if (stream.firstSound !== null)
          state.textContent = `First sound after ${wait(stream.firstSound - began)}, ${seconds(stream.seconds)} so far`;
      }
      if (!stream.bytes) throw new Error('The server sent no sound.');
      const formats = FORMATS.filter((format) => studio.formats.includes(format));
      const take = takeOf({
        speech,
        formats,
        pcm: stream.pcm(),
        wav: stream.wav(),
        rate,
        first: stream.firstSound - began,
      });
      players.push(take.player);
      takes.prepend(take.element);
      state.textContent = `First sound after ${wait(stream.firstSound - began)}, ${seconds(stream.seconds)} in ${seconds((performance.now() - began) / 1000)}`;
      await stream.ended();
      if (cut) state.textContent = 'Stopped.';
    } catch (error) {
      state.textContent = cut ? 'Stopped.' : '';
      if (!cut) problems.show(error, form);
      stream.pause();
    } finally {
      if (stop === mine) {
        stop = null;
        halt.disabled = true;
      }
    }
  }

  const form = el(
    'form',
    { class: 'card speak' },
    el('label', { class: 'field' }, el('span', {}, 'Text', left), input),
    el('div', { class: 'buttons' }, speak, halt, state),
    problems.element,
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    say();
  });
  const keys = (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (input.value.trim()) say();
      else form.reportValidity();
    } else if (event.key === 'Escape' && stop) stop();
  };
  page.addEventListener('keydown', keys);
  const settings = el(
    'section',
    { class: 'card settings', 'aria-label': 'Settings' },
    voices.element,
    speed.element,
    steps.element,
    guidance.element,
    field('Seed', seed),
  );
  const another = newVoice(studio, (id) => voices.update(id));
  replace(
    page,
    el('h1', {}, 'Voices'),
    el(
      'div',
      { class: 'two' },
      el('div', { class: 'stack' }, form, takes),
      el('div', { class: 'stack' }, settings, another.element),
    ),
  );
  await voices.update();
  return () => {
    stop?.();
    another.release();
    for (const player of players) player.release();
  };
}
