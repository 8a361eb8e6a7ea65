// Taking a listening test: blind, by mouse or keys, one trial after the other.
import { get, post } from './api.js';
import { announce, el, field, replace } from './dom.js';
import { KINDS, results } from './listening.js';
import { Player } from './player.js';
import { problemPlace } from './problem.js';

const letter = (index) => String.fromCharCode(65 + index);

/** Where a listener has got to in this tab, so that a reload does not begin anew. */
const progressOf = (id, listener) => {
  const name = `madrigal-test-${id}-${listener}`;
  return {
    done: () => new Set(JSON.parse(sessionStorage.getItem(name) ?? '[]')),
    add: (trial) =>
      sessionStorage.setItem(
        name,
        JSON.stringify([...new Set([...JSON.parse(sessionStorage.getItem(name) ?? '[]'), trial])]),
      ),
  };
};

function welcome(test, begin) {
  const name = el('input', {
    name: 'listener',
    required: true,
    autocomplete: 'nickname',
    value: localStorage.getItem('madrigal-listener') ?? '',
    maxlength: 60,
  });
  const keys =
    test.kind === 'ab'
      ? [
          ['A', 'hear A'],
          ['B', 'hear B'],
          ['R', 'hear the reference, if there is one'],
          ['1', 'A is better'],
          ['2', 'B is better'],
          ['0', 'no difference'],
        ]
      : [
          ['A B C …', 'hear a sound'],
          ['R', 'hear the reference'],
          ['← →', 'on a slider: its score'],
          ['Enter', 'go on'],
        ];
  const form = el(
    'form',
    { class: 'card' },
    el(
      'p',
      {},
      test.kind === 'ab'
        ? 'You hear two versions of the same thing. Say which sounds better; there is no wrong answer.'
        : 'You hear several versions of the same thing. Give each a score from 0, bad, to 100, as the reference. The reference itself is among them.',
    ),
    el(
      'dl',
      { class: 'pairs keys' },
      keys.map(([key, what]) => [
        el(
          'dt',
          {},
          key.split(' ').map((one) => [el('kbd', {}, one), ' ']),
        ),
        el('dd', {}, what),
      ]),
    ),
    field('Your name, or any sign', name),
    el('div', { class: 'buttons' }, el('button', { class: 'primary' }, 'Begin')),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    localStorage.setItem('madrigal-listener', name.value.trim());
    begin(name.value.trim());
  });
  return form;
}

/** What to hear in a trial: the players by key. */
function playersOf(trial) {
  const heard = trial.stimuli.map(
    (stimulus, index) => new Player({ label: letter(index), source: stimulus.url, blind: true }),
  );
  const reference = trial.reference && new Player({ label: 'the reference', source: trial.reference.url, blind: true });
  const keys = new Map(heard.map((player, index) => [letter(index).toLowerCase(), player]));
  if (reference) keys.set('r', reference);
  return { heard, reference, keys, all: reference ? [reference, ...heard] : heard };
}

function pairTrial(trial, answer) {
  const players = playersOf(trial);
  const choose = (choice, text, key) =>
    el(
      'button',
      { type: 'button', class: 'choice', onclick: () => answer({ choice }), data: { choice } },
      text,
      ' ',
      el('kbd', {}, key),
    );
  const stimulus = (player, name) => el('div', { class: 'stimulus' }, el('h3', {}, name), player.element);
  const element = el(
    'div',
    { class: 'trial ab' },
    players.reference && stimulus(players.reference, 'Reference'),
    el(
      'div',
      { class: 'pair' },
      players.heard.map((player, index) => stimulus(player, letter(index))),
    ),
    el(
      'div',
      { class: 'buttons choices-row', role: 'group', 'aria-label': 'Which sounds better?' },
      choose('a', 'A is better', '1'),
      choose('none', 'No difference', '0'),
      choose('b', 'B is better', '2'),
    ),
  );
  const choices = { 1: 'a', 2: 'b', 0: 'none' };
  return { element, players, key: (key) => choices[key] && answer({ choice: choices[key] }) };
}

function scoreTrial(trial, answer) {
  const players = playersOf(trial);
  const touched = new Set();
  const go = el(
    'button',
    { type: 'button', class: 'primary', disabled: true, onclick: () => send() },
    'Go on ',
    el('kbd', {}, 'Enter'),
  );
  const sliders = trial.stimuli.map((stimulus, index) => {
    const output = el('output', { class: 'number' }, '–');
    const range = el('input', {
      type: 'range',
      min: 0,
      max: 100,
      step: 1,
      value: 50,
      'aria-label': `Score of ${letter(index)}`,
    });
    const touch = () => {
      output.textContent = range.value;
      touched.add(stimulus.token);
      go.disabled = touched.size < trial.stimuli.length;
    };
    range.addEventListener('input', touch);
    range.addEventListener('change', touch);
    return { token: stimulus.token, range, element: el('div', { class: 'score' }, range, output) };
  });
  const send = () => {
    if (!go.disabled)
      answer({ scores: Object.fromEntries(sliders.map((one) => [one.token, Number(one.range.value)])) });
  };
  const element = el(
    'div',
    { class: 'trial mushra' },
    players.reference && el('div', { class: 'stimulus' }, el('h3', {}, 'Reference'), players.reference.element),
    players.heard.map((player, index) =>
      el('div', { class: 'stimulus' }, el('h3', {}, letter(index)), player.element, sliders[index].element),
    ),
    el(
      'p',
      { class: 'scale muted', 'aria-hidden': 'true' },
      ['bad', 'poor', 'fair', 'good', 'excellent'].map((word) => el('span', {}, word)),
    ),
    el('div', { class: 'buttons' }, go),
  );
  return { element, players, key: (key) => key === 'Enter' && send() };
}

export async function takingView({ page, rest: [id] }) {
  const test = await get(`/api/listening/${encodeURIComponent(id)}`);
  const place = el('div', { class: 'stack' });
  const heading = el('h1', { tabindex: '-1' }, test.title);
  const state = el(
    'p',
    { class: 'muted number', role: 'status' },
    `${KINDS[test.kind] ?? test.kind}, ${test.trials.length} ${test.trials.length === 1 ? 'trial' : 'trials'}`,
  );
  replace(
    page,
    el('nav', { class: 'crumbs', 'aria-label': 'Where this is' }, el('a', { href: '#/listening' }, 'Listening')),
    heading,
    state,
    place,
  );
  let current = null;

  function finished(listener) {
    current = null;
    const out = el('div', { class: 'results' });
    const show = el('button', { type: 'button', onclick: () => results(out, id) }, 'Show the results');
    state.textContent = '';
    replace(
      place,
      el(
        'section',
        { class: 'card done' },
        el('h2', {}, `Thank you, ${listener}.`),
        el(
          'p',
          {},
          'Every answer is in the file. The results tell which was which, so look at them when all have listened.',
        ),
        el('div', { class: 'buttons' }, show, el('a', { class: 'button', href: '#/listening' }, 'All tests')),
        out,
      ),
    );
    announce('That was the last one. Thank you.');
    show.focus();
  }

  function run(listener) {
    const progress = progressOf(id, listener);
    const next = () => {
      const done = progress.done();
      const trial = test.trials.find((one) => !done.has(one.id));
      if (!trial) return finished(listener);
      const problems = problemPlace();
      let sending = false;
      const answer = async (given) => {
        if (sending) return;
        problems.clear();
        const unheard = made.players.heard.filter((player) => !player.heard);
        if (unheard.length) {
          const names = unheard
            .map((player) => player.label)
            .join(', ')
            .replace(/, (?=[^,]*$)/, ' and ');
          problems.show(new Error(`Hear ${names} to the end first.`));
          return;
        }
        sending = true;
        try {
          await post(`/api/listening/${encodeURIComponent(id)}/answers`, { listener, trial: trial.id, ...given });
          progress.add(trial.id);
          for (const player of made.players.all) player.release();
          next();
        } catch (error) {
          problems.show(error);
        }
        sending = false;
      };
      const made = (test.kind === 'ab' ? pairTrial : scoreTrial)(trial, answer);
      current = made;
      const at = test.trials.indexOf(trial) + 1;
      state.textContent = `Trial ${done.size + 1} of ${test.trials.length}`;
      const bar = el('span', { class: 'fill' });
      bar.style.width = `${(100 * done.size) / test.trials.length}%`;
      replace(
        place,
        el('span', { class: 'track', 'aria-hidden': 'true' }, bar),
        el('section', { class: 'card', 'aria-label': `Trial ${at}` }, made.element, problems.element),
      );
      heading.focus({ preventScroll: true });
      return undefined;
    };
    next();
  }

  const keys = (event) => {
    if (event.repeat) {
      // A key that is held down answers once, also where it presses a button.
      if (event.key === 'Enter') event.preventDefault();
      return;
    }
    if (!current || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches('input:not([type=range]), textarea, select');
    if (typing || (event.key === 'Enter' && event.target.matches('button, a'))) return;
    const player = current.players.keys.get(event.key.toLowerCase());
    if (player) {
      event.preventDefault();
      player.toggle();
    } else current.key(event.key);
  };
  document.addEventListener('keydown', keys);
  replace(place, welcome(test, run));
  return () => {
    document.removeEventListener('keydown', keys);
    for (const player of current?.players.all ?? []) player.release();
  };
}
