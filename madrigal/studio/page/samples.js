// What a run let be heard, seen or read, step by step: original beside reconstruction beside its average.
import { fileUrl, get, request, runPath } from './api.js';
import { announce, el, empty, replace, whenSeen } from './dom.js';
import { count } from './format.js';
import { Player } from './player.js';
import { problem } from './problem.js';

const POLL = 5000;

/** "reconstruction-ema" and {role: "reconstruction", ema: true} are the same. */
export function titleOf(item) {
  const role = item.role ?? item.name;
  const plain = role.replace(/-ema$/, '');
  const averaged = item.ema || plain !== role;
  if (role === 'ema') return 'EMA';
  return averaged ? `${plain} (EMA)` : plain;
}

/** Original, reconstruction, average; words last. */
const rank = (item) =>
  (item.kind === 'text' ? 3 : 0) + (item.role === 'original' ? 0 : /(^|-)ema$/.test(item.role) || item.ema ? 2 : 1);

function cell(id, step, item, players) {
  const title = titleOf(item);
  const label = `${title} of item ${/^\d+$/.test(item.group) ? Number(item.group) : item.group}`;
  const box = el('figure', { class: `sample ${item.kind}` }, el('figcaption', {}, title));
  if (item.kind === 'audio') {
    const picture = runPath(id, `/spectrogram.png?step=${step}&name=${encodeURIComponent(item.name)}`);
    const player = new Player({ label, source: item.url, picture });
    players.push(player);
    box.append(player.element);
  } else if (item.kind === 'image') {
    whenSeen(box, async () => {
      try {
        const image = el('img', { src: await fileUrl(item.url), alt: label });
        image.addEventListener('load', () => image.classList.toggle('small-pixels', image.naturalWidth < 200));
        box.append(el('button', { type: 'button', class: 'bare', onclick: () => enlarge(image.src, label) }, image));
      } catch (error) {
        box.append(problem(error));
      }
    });
  } else {
    const text = el('pre', { tabindex: '0' });
    box.append(text);
    whenSeen(box, async () => {
      text.textContent = await request(item.url)
        .then((response) => response.text())
        .catch((error) => error.message);
      saidOnce(box.parentElement);
    });
  }
  return box;
}

/** A picture as large as the window lets it be; any click or Escape closes it. */
function enlarge(url, label) {
  const image = el('img', { src: url, alt: label });
  const dialog = el('dialog', { class: 'picture-dialog', 'aria-label': label, onclick: () => dialog.close() }, image);
  image.classList.add('small-pixels');
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** What the averaged weights say in the same words is not said twice. */
function saidOnce(section) {
  const told = [...(section?.querySelectorAll('.sample.text') ?? [])];
  const words = (box) => box.querySelector('pre').textContent;
  for (const box of told.filter((one) => one.querySelector('figcaption').textContent.endsWith('(EMA)'))) {
    if (words(box) && told.some((other) => other !== box && words(other) === words(box))) box.remove();
  }
}

function groups(items) {
  const found = new Map();
  for (const item of items) {
    if (!found.has(item.group)) found.set(item.group, []);
    found.get(item.group).push(item);
  }
  return [...found].map(([group, members]) => [
    group,
    members.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name)),
  ]);
}

export async function samplesPanel(place, id, run) {
  const stop = new AbortController();
  let steps = [];
  let chosen = null;
  let players = [];
  const out = el('div', { class: 'sample-groups' });
  const select = el('select', { onchange: () => show(Number(select.value)) });
  const go = (by) => {
    const at = steps.findIndex((entry) => entry.step === chosen) - by;
    if (steps[at]) show(steps[at].step);
  };
  const older = el('button', { type: 'button', onclick: () => go(-1) }, 'Older');
  const newer = el('button', { type: 'button', onclick: () => go(1) }, 'Newer');
  const hint = el(
    'p',
    { class: 'hint' },
    'In an item, ',
    el('kbd', {}, '1'),
    ' ',
    el('kbd', {}, '2'),
    ' ',
    el('kbd', {}, '3'),
    ' switch between its sounds at the same place.',
  );
  const tools = el(
    'div',
    { class: 'tools' },
    el('label', { class: 'field' }, el('span', {}, 'Step'), select),
    older,
    newer,
    hint,
  );

  function show(step) {
    chosen = step;
    for (const player of players) player.release();
    players = [];
    const at = steps.findIndex((entry) => entry.step === step);
    replace(
      select,
      steps.map((entry) => el('option', { value: entry.step, selected: entry.step === step }, count(entry.step))),
    );
    older.disabled = at >= steps.length - 1;
    newer.disabled = at <= 0;
    hint.hidden = !steps[at].items.some((item) => item.kind === 'audio');
    out.classList.toggle(
      'grid',
      steps[at].items.some((item) => item.kind === 'image'),
    );
    replace(
      out,
      groups(steps[at].items).map(([group, items]) => {
        const own = [];
        const pictures = items.some((item) => item.kind === 'image');
        const section = el(
          'section',
          { class: `sample-group${pictures ? ' pictures' : ''}`, 'aria-label': `Item ${group}` },
          items.map((item) => cell(id, step, item, own)),
        );
        section.addEventListener('keydown', (event) => switchAmong(own, event));
        players.push(...own);
        return section;
      }),
    );
    announce(`Samples of step ${count(step)}`);
  }

  /** 1, 2, 3: the same place of another version, so that the ear has nothing to remember. */
  function switchAmong(own, event) {
    const next = own[Number(event.key) - 1];
    if (!next || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const now = own.find((player) => !player.audio.paused);
    const position = now?.audio.currentTime ?? 0;
    next.load().then(() => {
      if (now) next.audio.currentTime = position;
      next.button.focus();
      next.play();
    });
  }

  let timer = null;
  async function update() {
    const followed = steps.length && chosen === steps[0].step;
    const before = steps.map((entry) => `${entry.step}:${entry.items.length}`).join();
    steps = (await get(runPath(id, '/samples'), stop.signal)).steps;
    if (!steps.length) {
      replace(
        place,
        empty(
          'No samples yet',
          el('p', {}, 'They are written every plan.save_results_every steps and appear here by themselves.'),
        ),
      );
    } else if (steps.map((entry) => `${entry.step}:${entry.items.length}`).join() !== before) {
      if (!out.isConnected) replace(place, tools, out);
      const sounding = players.some((player) => !player.audio.paused);
      if (chosen === null || (followed && !sounding)) show(steps[0].step);
      else show(steps.some((entry) => entry.step === chosen) ? chosen : steps[0].step);
    }
  }
  await update();
  const poll = async () => {
    const busy = players.some((player) => !player.audio.paused);
    if (run().state === 'training' && !document.hidden && !busy) await update().catch(() => {});
    if (!stop.signal.aborted) timer = setTimeout(poll, POLL);
  };
  timer = setTimeout(poll, POLL);
  return () => {
    clearTimeout(timer);
    stop.abort();
    for (const player of players) player.release();
  };
}
