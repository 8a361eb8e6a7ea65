// Elements without markup in strings: nothing that a server says is ever read as HTML.

/** el('p', {class: 'note', onclick: f}, 'text', child): properties that start with "on" are listeners. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (['value', 'checked', 'disabled', 'hidden', 'htmlFor', 'selected'].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** A labelled control; the `hint` describes it and is no part of its name. */
export function field(label, control, hint) {
  const named = el('label', { class: 'field' }, el('span', {}, label), control);
  if (!hint) return named;
  const told = el('small', { id: uniqueId('hint') }, hint);
  control.setAttribute('aria-describedby', told.id);
  return el('div', { class: 'field' }, named, told);
}

/** A slider that shows its value; `own` is what stands there when the value is left to the model. */
export function slider(label, { name, min, max, step, value, own, show = String }) {
  // No <output>: a label would name that and not the slider.
  const output = el('b', { class: 'number', 'aria-hidden': 'true' });
  const range = el('input', { type: 'range', name, min, max, step });
  let untouched = own !== undefined && value === undefined;
  range.value = value ?? own?.at ?? min;
  const paint = () => {
    output.textContent = range.disabled ? 'built in' : untouched ? own.text : show(Number(range.value));
    range.setAttribute('aria-valuetext', output.textContent);
  };
  range.addEventListener('input', () => {
    untouched = false;
    paint();
  });
  paint();
  const wrapper = el('label', { class: 'field slider' }, el('span', {}, label, output), range);
  return {
    element: wrapper,
    range,
    value: () => (untouched || range.disabled ? undefined : Number(range.value)),
    /** Where the model knows one value only there is nothing to choose. */
    fix(isFixed) {
      range.disabled = isFixed;
      paint();
    },
    set(next) {
      untouched = next === undefined;
      if (next !== undefined) range.value = next;
      paint();
    },
  };
}

let counter = 0;
export const uniqueId = (prefix) => `${prefix}-${++counter}`;

/** Tells those who do not see the page what has just happened. */
export function announce(sentence) {
  document.getElementById('status').textContent = sentence;
}

/** Hands a blob to the browser's downloads. */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

/** Something to read where there is nothing to show yet. */
export function empty(title, ...rest) {
  return el('div', { class: 'empty' }, el('h2', {}, title), ...rest);
}

export const command = (text) => el('pre', { class: 'command', tabindex: '0' }, el('code', {}, text));

/** Calls `act` when the element first comes near the window. */
export function whenSeen(element, act) {
  const watcher = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      act();
    },
    { rootMargin: '300px' },
  );
  watcher.observe(element);
}

/** Tabs as the ARIA pattern has them: arrow keys move between them, one is in the order of Tab. */
export function tabs(label, entries, { chosen, onchoose }) {
  const bar = el('div', { class: 'tabs', role: 'tablist', 'aria-label': label });
  const panel = el('div', { class: 'tab-panel', role: 'tabpanel', id: uniqueId('panel') });
  const buttons = entries.map(([name, text]) =>
    el(
      'button',
      {
        type: 'button',
        role: 'tab',
        id: uniqueId('tab'),
        'aria-controls': panel.id,
        data: { name },
        onclick: () => choose(name),
      },
      text,
    ),
  );
  bar.append(...buttons);
  bar.addEventListener('keydown', (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!by || at < 0) return;
    event.preventDefault();
    const next = buttons[(at + by + buttons.length) % buttons.length];
    next.focus();
    choose(next.dataset.name);
  });
  function choose(name) {
    for (const button of buttons) {
      const on = button.dataset.name === name;
      button.setAttribute('aria-selected', String(on));
      button.tabIndex = on ? 0 : -1;
      if (on) panel.setAttribute('aria-labelledby', button.id);
    }
    onchoose(name, panel);
  }
  return { bar, panel, start: () => choose(chosen) };
}
