// The frame: a hash route shows a view; a view is a function that fills `main` and may return what to do on leaving it.
import { get, releaseFiles } from './api.js';
import { announce, el, replace } from './dom.js';
import { problem } from './problem.js';
import { setUpTheme } from './theme.js';

const VIEWS = {
  runs: ['Runs', async (...args) => (await import('./runs.js')).runsView(...args)],
  run: ['Run', async (...args) => (await import('./run.js')).runView(...args)],
  voices: ['Voices', async (...args) => (await import('./voices.js')).voicesView(...args)],
  edit: ['Edit', async (...args) => (await import('./edit.js')).editView(...args)],
  pictures: ['Pictures', async (...args) => (await import('./pictures.js')).picturesView(...args)],
  music: ['Music', async (...args) => (await import('./music.js')).musicView(...args)],
  listening: ['Listening', async (...args) => (await import('./listening.js')).listeningView(...args)],
  listen: ['Listening test', async (...args) => (await import('./taking.js')).takingView(...args)],
};
const PAGE_OF = { run: 'runs', listen: 'listening' };

const main = document.getElementById('view');
let leave = null;
let shown = 0;
let first = true;
let address = '';

/** What is no such code, as in "#/run/100%", stands for itself. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** "#/run/music%2Fmulan/samples" is the view "run" with the arguments ["music/mulan", "samples"]. */
function route() {
  const parts = location.hash.replace(/^#\/?/, '').split('/').map(decoded);
  const name = Object.hasOwn(VIEWS, parts[0]) ? parts[0] : 'runs';
  return { name, rest: parts.slice(1) };
}

function markPage(name) {
  for (const link of document.querySelectorAll('header nav a')) {
    if (link.getAttribute('href') === `#/${PAGE_OF[name] ?? name}`) {
      link.setAttribute('aria-current', 'page');
      link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else link.removeAttribute('aria-current');
  }
}

async function show() {
  if (location.hash === '#view') {
    history.replaceState(null, '', address); // the link that skips to the content is no page of its own
    main.focus();
    return;
  }
  address = location.hash;
  const turn = ++shown;
  const { name, rest } = route();
  const [title, view] = VIEWS[name];
  leave?.();
  leave = null;
  releaseFiles();
  markPage(name);
  document.title = `${rest[0] ? `${rest[0]} · ` : ''}${title} · Madrigal studio`;
  const page = el('div', { class: `page ${name}` });
  replace(main, page);
  if (!first) main.focus({ preventScroll: true });
  first = false;
  try {
    const studio = await get('/api/studio');
    if (turn !== shown) return;
    const left = await view({ page, studio, rest });
    if (turn === shown) leave = left ?? null;
    else left?.();
  } catch (error) {
    if (turn !== shown) return;
    replace(page, el('h1', {}, title), problem(error, { again: show }));
  }
  announce(document.title);
}

setUpTheme(document.getElementById('theme'));
addEventListener('hashchange', show);
show();
