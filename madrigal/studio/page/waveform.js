// A wave on a canvas, crisp at any pixel ratio, with a marked span and the words under it.
import { announce, el, replace } from './dom.js';
import { seconds } from './format.js';
import { colour } from './theme.js';
import { peaks } from './wav.js';

/** Draws `samples` into `canvas`; `spans` are [from, to] in seconds. */
export function drawWave(canvas, { samples, rate }, { spans = [], played } = {}) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !height) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  const columns = Math.max(1, Math.floor(canvas.width / Math.max(1, Math.round(ratio))));
  const found = peaks(samples, columns);
  let loudest = 0.05;
  for (const value of found) loudest = Math.max(loudest, Math.abs(value));
  const middle = canvas.height / 2;
  const scale = (0.92 * middle) / loudest;
  const length = samples.length / rate;
  const inside = (column) =>
    spans.some(([from, to]) => (column / columns) * length >= from && (column / columns) * length <= to);
  context.fillStyle = colour('accent-faint');
  for (const [from, to] of spans)
    context.fillRect(
      (from / length) * canvas.width,
      0,
      Math.max(1, ((to - from) / length) * canvas.width),
      canvas.height,
    );
  const [plain, marked] = [colour('wave'), colour('accent')];
  const step = canvas.width / columns;
  for (let column = 0; column < columns; column += 1) {
    context.fillStyle = inside(column) ? marked : plain;
    const top = middle - found[2 * column + 1] * scale;
    const bottom = middle - found[2 * column] * scale;
    context.fillRect(column * step, top, Math.max(1, step - 0.2), Math.max(ratio, bottom - top));
  }
  if (played !== undefined) {
    context.fillStyle = colour('accent');
    context.fillRect((played / length) * canvas.width, 0, 2 * ratio, canvas.height);
  }
}

/** A wave that is only looked at; draws itself anew when its size or the colours change. */
export function stillWave(sound, options = {}) {
  const canvas = el('canvas', { class: 'wave', 'aria-hidden': 'true' });
  const draw = () => drawWave(canvas, sound, options);
  new ResizeObserver(draw).observe(canvas);
  const redraw = () => {
    if (canvas.isConnected) draw();
    else document.removeEventListener('themechange', redraw);
  };
  document.addEventListener('themechange', redraw);
  return canvas;
}

/** A wave in which a span can be marked, by mouse or keys; words under it choose their own span. */
export class SpanWave {
  constructor(sound, { onspan }) {
    this.sound = sound;
    this.length = sound.samples.length / sound.rate;
    this.onspan = onspan;
    this.span = null;
    this.cursor = 0;
    this.words = [];
    this.canvas = el('canvas', {
      class: 'wave tall',
      tabindex: '0',
      role: 'application', // or a screen reader would keep the arrow keys for itself
      'aria-roledescription': 'waveform',
    });
    this.wordRow = el('div', { class: 'words', role: 'toolbar', 'aria-label': 'Words of the recording' });
    this.element = el('div', { class: 'span-wave' }, this.canvas, this.wordRow);
    this.draw = () => drawWave(this.canvas, this.sound, { spans: this.span ? [this.span] : [], played: this.played });
    this.observer = new ResizeObserver(() => {
      this.draw();
      this.#layWords();
    });
    this.observer.observe(this.canvas);
    document.addEventListener('themechange', this.draw);
    this.#listen();
    this.#label();
  }

  release() {
    this.observer.disconnect();
    document.removeEventListener('themechange', this.draw);
  }

  #label() {
    const marked = this.span
      ? `marked ${this.span[0].toFixed(2)} to ${this.span[1].toFixed(2)} seconds`
      : 'nothing marked';
    this.canvas.setAttribute(
      'aria-label',
      `Waveform of ${this.length.toFixed(1)} seconds, ${marked}. Arrow keys move, with Shift they mark, Escape clears.`,
    );
  }

  set(span, { quiet = false } = {}) {
    this.span = span && [Math.max(0, Math.min(...span)), Math.min(this.length, Math.max(...span))];
    if (this.span && this.span[1] - this.span[0] < 0.01) this.span = null;
    this.draw();
    this.#label();
    for (const button of this.wordRow.children) button.setAttribute('aria-pressed', String(this.#covers(button.word)));
    if (!quiet) this.onspan(this.span, this.wordsInside());
  }

  #covers(word) {
    return (
      Boolean(this.span) && (word.start + word.end) / 2 >= this.span[0] && (word.start + word.end) / 2 <= this.span[1]
    );
  }

  wordsInside() {
    return this.words.filter((word) => this.#covers(word));
  }

  showPlayed(time) {
    this.played = time;
    this.draw();
  }

  setWords(words) {
    this.words = words;
    replace(
      this.wordRow,
      words.map((word, index) => {
        const button = el(
          'button',
          {
            type: 'button',
            'aria-pressed': 'false',
            tabindex: index ? '-1' : '0',
            title: `${seconds(word.start)} to ${seconds(word.end)}`,
          },
          word.word,
        );
        button.word = word;
        button.addEventListener('click', (event) => this.#choose(index, event.shiftKey));
        button.addEventListener('keydown', (event) => this.#wordKey(index, event));
        return button;
      }),
    );
    this.#layWords();
  }

  /** Words stand below their place as far as they can without lying over each other. */
  #layWords() {
    const width = this.canvas.clientWidth;
    const gap = 3;
    const rows = [];
    for (const button of this.wordRow.children) {
      const left = Math.min((button.word.start / this.length) * width, Math.max(0, width - button.offsetWidth));
      let row = rows.findIndex((end) => end + gap <= left);
      if (row < 0) row = rows.push(0) - 1;
      rows[row] = left + button.offsetWidth;
      button.style.left = `${left}px`;
      button.style.top = `${row * 30}px`;
    }
    this.wordRow.style.height = `${rows.length * 30}px`;
  }

  #choose(index, extend) {
    if (!extend || this.anchor === undefined) this.anchor = index;
    const [from, to] = [Math.min(this.anchor, index), Math.max(this.anchor, index)];
    this.set([this.words[from].start, this.words[to].end]);
  }

  #wordKey(index, event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = Math.min(this.words.length - 1, Math.max(0, index + by));
    const buttons = [...this.wordRow.children];
    buttons.forEach((button, at) => {
      button.tabIndex = at === next ? 0 : -1;
    });
    buttons[next].focus();
    if (event.shiftKey) {
      this.anchor ??= index;
      this.#choose(next, true);
    }
  }

  #listen() {
    const time = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return Math.max(0, Math.min(this.length, ((event.clientX - box.left) / box.width) * this.length));
    };
    let from = null;
    this.canvas.addEventListener('pointerdown', (event) => {
      if (event.button) return;
      from = time(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener('pointermove', (event) => {
      if (from !== null) this.set([from, time(event)], { quiet: true });
    });
    this.canvas.addEventListener('pointerup', (event) => {
      if (from === null) return;
      this.cursor = time(event);
      this.set([from, this.cursor]);
      from = null;
    });
    this.canvas.addEventListener('pointercancel', () => {
      from = null;
    });
    this.canvas.addEventListener('keydown', (event) => this.#key(event));
  }

  #key(event) {
    const step = event.altKey ? 0.01 : 0.05;
    const by = { ArrowRight: step, ArrowLeft: -step }[event.key];
    if (event.key === 'Escape' && this.span) {
      event.preventDefault();
      this.set(null);
      announce('Nothing is marked.');
    } else if (by) {
      event.preventDefault();
      const before = this.cursor;
      this.cursor = Math.max(0, Math.min(this.length, this.cursor + by));
      if (event.shiftKey) {
        const fixed = this.span ? (Math.abs(this.span[0] - before) < 1e-6 ? this.span[1] : this.span[0]) : before;
        this.set([fixed, this.cursor]);
        if (this.span) announce(`${seconds(this.span[0])} to ${seconds(this.span[1])}`);
      } else {
        this.showPlayed(this.cursor);
        announce(seconds(this.cursor));
      }
    }
  }
}
