// Music from words: several tries, the one that fits the words best is returned.
import { request } from './api.js';
import { announce, download, el, replace, slider } from './dom.js';
import { seconds, slug } from './format.js';
import { missing, ofKind } from './models.js';
import { Player } from './player.js';
import { prompting } from './prompting.js';
import { decoded } from './wav.js';
import { stillWave } from './waveform.js';

export async function musicView({ page, studio }) {
  const models = ofKind(studio, 'music');
  if (!models.length) {
    replace(page, el('h1', {}, 'Music'), missing('music'));
    return undefined;
  }
  const asking = prompting({ models, placeholder: 'a slow piano piece', verb: 'Play', doing: 'Composing …' });
  const length = slider('Length', {
    name: 'seconds',
    min: 1,
    max: studio.limits.music_seconds,
    step: 1,
    value: 5,
    show: (value) => `${value} s`,
  });
  const n = slider('Tries', { name: 'n', min: 1, max: 8, step: 1, value: 1 });
  const takes = el('section', { class: 'takes', 'aria-label': 'Music' });
  const players = [];

  async function play(signal, seed) {
    const words = asking.words();
    const response = await request('/v1/audio/music', {
      method: 'POST',
      json: {
        model: asking.model(),
        prompt: words,
        seconds: length.value(),
        n: n.value(),
        seed,
        response_format: 'wav',
      },
      signal,
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
        el('p', { class: 'number muted' }, `seed ${seed} · ${seconds(sound.seconds)}`),
        el(
          'div',
          { class: 'buttons small' },
          el('button', { type: 'button', onclick: () => download(wav, `${slug(words)}.wav`) }, 'wav'),
        ),
      ),
    );
    announce('The music is there.');
    player.play();
    return '';
  }

  const form = asking.filled(
    play,
    el('div', { class: 'tools grow' }, length.element, n.element, ...asking.fields),
    el('p', { class: 'hint' }, 'Of several tries the one that fits the words best is kept.'),
  );
  replace(page, el('h1', {}, 'Music'), el('div', { class: 'stack' }, form, takes));
  return () => {
    asking.leave();
    for (const player of players) player.release();
  };
}
