// Change what was said: mark a span of a recording, replace its words or let it be spoken anew.
import { formOf, request } from './api.js';
import { announce, download, el, empty, field, replace } from './dom.js';
import { dropPlace } from './drop.js';
import { seconds } from './format.js';
import { freshSeed, missing, modelField, ofKind } from './models.js';
import { Player } from './player.js';
import { problemPlace } from './problem.js';
import { recordButton } from './recorder.js';
import { decoded, forServer } from './wav.js';
import { SpanWave, stillWave } from './waveform.js';

/** Original and edit, one over the other, with the new part marked. */
function compared({ before, after, sound, spans, text, use }) {
  const old = new Player({ label: 'the recording before', source: before.file, picture: stillWave(before.sound) });
  const made = new Player({ label: 'the recording after', source: after, picture: stillWave(sound, { spans }) });
  const element = el(
    'section',
    {
      class: 'card compared',
      'aria-label': 'Before and after',
      data: { seconds: sound.seconds.toFixed(4), spans: spans.map((span) => span.join('-')).join() },
    },
    el('h2', {}, 'Before and after'),
    el(
      'div',
      { class: 'pair' },
      el('div', {}, el('h3', {}, 'Before'), old.element),
      el('div', {}, el('h3', {}, 'After'), made.element),
    ),
    text && el('p', { class: 'said' }, text),
    spans.length > 0 &&
      el(
        'p',
        { class: 'muted number' },
        `New: ${spans.map(([from, to]) => `${seconds(from)} to ${seconds(to)}`).join(', ')}. All else is as it was.`,
      ),
    el(
      'div',
      { class: 'buttons' },
      el('button', { type: 'button', onclick: () => download(after, 'edited.wav') }, 'Download wav'),
      el('button', { type: 'button', onclick: use }, 'Go on from this one'),
    ),
  );
  return { element, players: [old, made] };
}

export async function editView({ page, studio }) {
  const models = ofKind(studio, 'speech');
  if (!models.length) {
    replace(page, el('h1', {}, 'Edit'), missing('speech'));
    return undefined;
  }
  const problems = problemPlace();
  const work = el('div', { class: 'stack' });
  const result = el('div', { class: 'stack', 'aria-live': 'polite' });
  let release = [];
  const letGo = () => {
    for (const act of release) act();
    release = [];
  };

  async function open(given, known = '') {
    problems.clear();
    try {
      const file = await forServer(given);
      const sound = await decoded(file);
      letGo();
      replace(result);
      workbench(file, sound, known);
      announce(`A recording of ${seconds(sound.seconds)} is open.`);
    } catch (error) {
      problems.show(error);
    }
  }

  function workbench(file, sound, known) {
    const trouble = problemPlace();
    const model = modelField(models);
    const text = el('textarea', { name: 'text', rows: 2, placeholder: 'What is said in the recording' });
    text.value = known;
    const find = el('button', { type: 'button' }, 'Find the words');
    const from = el('input', { type: 'number', min: 0, max: sound.seconds.toFixed(2), step: 0.01, name: 'from' });
    const to = el('input', { type: 'number', min: 0, max: sound.seconds.toFixed(2), step: 0.01, name: 'to' });
    const old = el('input', { name: 'replace_old', placeholder: 'words that are said', autocomplete: 'off' });
    const fresh = el('input', { name: 'replace_new', placeholder: 'words to be said instead', autocomplete: 'off' });
    const seed = el('input', { type: 'number', name: 'seed', min: 0, step: 1, placeholder: 'new' });
    const replaceButton = el('button', { class: 'primary', type: 'submit' }, 'Replace');
    const fillButton = el('button', { type: 'button' }, 'Speak the span anew');
    const state = el('p', { class: 'muted', role: 'status' });
    const player = new Player({ label: 'the recording', source: file });
    const wave = new SpanWave(sound, {
      onspan(span, words) {
        from.value = span ? span[0].toFixed(2) : '';
        to.value = span ? span[1].toFixed(2) : '';
        if (words.length) old.value = words.map((word) => word.word).join(' ');
        hear.disabled = !span;
        fillButton.disabled = !span;
      },
    });
    release.push(
      () => wave.release(),
      () => player.release(),
    );
    const hear = el('button', { type: 'button', disabled: true, onclick: () => hearSpan() }, 'Hear the span');
    fillButton.disabled = true;
    player.audio.addEventListener('timeupdate', () => wave.showPlayed(player.audio.currentTime));

    async function hearSpan() {
      const [start, end] = wave.span;
      await player.load();
      player.audio.currentTime = start;
      await player.play();
      const watch = () => {
        if (player.audio.currentTime >= end) player.pause();
        if (!player.audio.paused) requestAnimationFrame(watch);
      };
      requestAnimationFrame(watch);
    }

    const typed = () => {
      if (from.value !== '' && to.value !== '' && Number(to.value) > Number(from.value))
        wave.set([Number(from.value), Number(to.value)], { quiet: true });
      hear.disabled = !wave.span;
      fillButton.disabled = !wave.span;
    };
    from.addEventListener('change', typed);
    to.addEventListener('change', typed);

    find.addEventListener('click', async () => {
      trouble.clear();
      find.disabled = true;
      state.textContent = 'Listening …';
      try {
        const response = await request('/v1/audio/words', {
          method: 'POST',
          form: formOf({ file, text: text.value.trim(), model: models.length > 1 ? model.select.value : undefined }),
        });
        const answer = await response.json();
        text.value = answer.text ?? text.value;
        wave.setWords(answer.words);
        state.textContent = `${answer.words.length} words found.`;
      } catch (error) {
        state.textContent = '';
        trouble.show(error, form);
      } finally {
        find.disabled = false;
      }
    });

    async function edit(values, button) {
      trouble.clear();
      button.disabled = true;
      state.textContent = 'Speaking …';
      try {
        const all = {
          file,
          model: model.select.value,
          text: text.value.trim(),
          seed: seed.value === '' ? freshSeed() : seed.value,
          ...values,
        };
        const response = await request('/v1/audio/edits', { method: 'POST', form: formOf(all) });
        const after = await response.blob();
        const spoken = response.headers.get('X-Madrigal-Text');
        const spans = (response.headers.get('X-Madrigal-Span') ?? '')
          .split(',')
          .filter(Boolean)
          .map((span) => span.split('-').map(Number));
        const heard = await decoded(after);
        const words = spoken ? decodeURIComponent(spoken) : '';
        const shown = compared({
          before: { file, sound },
          after,
          sound: heard,
          spans,
          text: words,
          use: () => open(new File([after], 'edited.wav', { type: 'audio/wav' }), words),
        });
        release.push(...shown.players.map((one) => () => one.release()));
        replace(result, shown.element);
        state.textContent = 'Done.';
        shown.element.scrollIntoView({ block: 'nearest' });
      } catch (error) {
        state.textContent = '';
        trouble.show(error, form);
      } finally {
        button.disabled = false;
      }
    }
    fillButton.addEventListener('click', () =>
      edit({ fill: `${wave.span[0].toFixed(2)}-${wave.span[1].toFixed(2)}` }, fillButton),
    );

    const form = el(
      'form',
      { class: 'card' },
      el('h2', {}, file.name ?? 'Recording', el('small', { class: 'number muted' }, ` ${seconds(sound.seconds)}`)),
      wave.element,
      el('div', { class: 'tools' }, player.element, field('From, s', from), field('To, s', to), hear),
      el('div', { class: 'tools grow' }, field('What is said', text, 'The words are found in the sound by it.'), find),
      el(
        'div',
        { class: 'tools grow' },
        field('Replace', old),
        field('by', fresh),
        replaceButton,
        el('span', { class: 'or' }, 'or'),
        fillButton,
      ),
      el('div', { class: 'tools' }, model.element, field('Seed', seed), state),
      trouble.element,
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (!old.value.trim() || !fresh.value.trim()) {
        trouble.show(new Error('Mark the words to replace, or type them, and say what is to be said instead.'));
        (old.value.trim() ? fresh : old).focus();
        return;
      }
      edit({ replace_old: old.value.trim(), replace_new: fresh.value.trim() }, replaceButton);
    });
    replace(
      work,
      form,
      el(
        'p',
        { class: 'hint' },
        'Drag over the wave or choose words (',
        el('kbd', {}, 'Shift'),
        ' extends). On the wave ',
        el('kbd', {}, '←'),
        ' ',
        el('kbd', {}, '→'),
        ' move, ',
        el('kbd', {}, 'Shift'),
        ' marks, ',
        el('kbd', {}, 'Alt'),
        ' is finer, ',
        el('kbd', {}, 'Esc'),
        ' clears.',
      ),
    );
  }

  replace(
    work,
    empty(
      'Change what was said',
      el(
        'p',
        {},
        'Open a recording of speech, say what is said in it, and mark some of its words. They are then spoken anew in the same voice, with other words or the same.',
      ),
    ),
  );
  const recording = recordButton({
    done: (file) => open(file),
    failed: (error) => problems.show(error),
    longest: studio.limits.audio_seconds,
  });
  replace(
    page,
    el('h1', {}, 'Edit'),
    dropPlace({
      label: 'A recording',
      hint: 'Drop a file here, choose one, or record. It stays between this page and your server.',
      accept: 'audio/*,.wav,.flac,.mp3,.ogg,.opus',
      onfile: (file) => open(file),
      extra: recording.element,
    }),
    problems.element,
    work,
    result,
  );
  return () => {
    recording.release();
    letGo();
  };
}
