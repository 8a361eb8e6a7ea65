// A small player: one button, the sound as a picture, a place to seek. One plays at a time.
import { fileUrl } from './api.js';
import { el, whenSeen } from './dom.js';
import { clock } from './format.js';

let playing = null;

/** Stops whatever sounds, be it a file or a stream; `source` needs a method `pause`. */
export function takeTheFloor(source) {
  if (playing && playing !== source) playing.pause();
  playing = source;
}

/**
 * label: what it is, for those who do not see it. source: a path of the server, or a Blob.
 * picture: a path (a spectrogram), or an element that is drawn already; hidden: shows neither picture nor length (blind tests).
 */
export class Player {
  constructor({ label, source, picture, blind = false }) {
    this.label = label;
    this.source = source;
    this.audio = el('audio', { preload: 'metadata' });
    this.button = el('button', { type: 'button', class: 'play', onclick: () => this.toggle() });
    this.range = el('input', {
      type: 'range',
      min: 0,
      max: 1000,
      step: 1,
      value: 0,
      'aria-label': `Position in ${label}`,
      oninput: () => this.#seek(),
    });
    this.time = el('span', { class: 'time number' }, '–');
    this.head = el('div', { class: 'head', hidden: true });
    this.picture = el('div', { class: typeof picture === 'string' ? 'picture spectrogram' : 'picture' }, this.head);
    this.element = el(
      'div',
      { class: 'player' },
      picture && this.picture,
      el('div', { class: 'row' }, this.button, this.range, !blind && this.time),
      this.audio,
    );
    this.onended = null;
    this.heard = false; // to its end, at least once
    this.#name();
    this.#listen();
    if (picture instanceof Node) this.picture.prepend(picture);
    whenSeen(this.element, () => {
      this.load();
      if (typeof picture === 'string') this.#spectrogram(picture);
    });
    if (picture) this.picture.addEventListener('click', (event) => this.#seekByClick(event));
  }

  #name() {
    const runs = !this.audio.paused;
    this.button.setAttribute('aria-label', `${runs ? 'Pause' : 'Play'} ${this.label}`);
    this.element.classList.toggle('playing', runs);
  }

  async #spectrogram(path) {
    try {
      const url = await fileUrl(path);
      if (!this.released)
        this.picture.prepend(el('img', { src: url, alt: `Spectrogram of ${this.label}`, draggable: 'false' }));
    } catch {
      this.picture.classList.add('without');
    }
  }

  load() {
    this.loading ??= (async () => {
      const url = this.source instanceof Blob ? URL.createObjectURL(this.source) : await fileUrl(this.source);
      if (!this.released) this.audio.src = url;
    })().catch((error) => {
      this.loading = undefined;
      this.time.textContent = error.message;
    });
    return this.loading;
  }

  #listen() {
    const tell = () => {
      const { currentTime, duration } = this.audio;
      if (!Number.isFinite(duration)) return;
      this.range.value = (1000 * currentTime) / duration;
      this.range.setAttribute('aria-valuetext', `${currentTime.toFixed(1)} of ${duration.toFixed(1)} seconds`);
      this.time.textContent = `${clock(currentTime)} / ${clock(duration)}`;
      this.head.hidden = currentTime === 0 && this.audio.paused;
      this.head.style.left = `${(100 * currentTime) / duration}%`;
    };
    const frame = () => {
      tell();
      if (!this.audio.paused) requestAnimationFrame(frame);
    };
    this.audio.addEventListener('loadedmetadata', tell);
    this.audio.addEventListener('seeked', tell);
    this.audio.addEventListener('play', () => {
      this.#name();
      requestAnimationFrame(frame);
    });
    this.audio.addEventListener('pause', () => {
      this.#name();
      tell();
    });
    this.audio.addEventListener('ended', () => {
      this.heard = true;
      this.audio.currentTime = 0;
      this.onended?.();
    });
  }

  #seek() {
    if (Number.isFinite(this.audio.duration)) this.audio.currentTime = (this.range.value / 1000) * this.audio.duration;
  }

  #seekByClick(event) {
    const box = this.picture.getBoundingClientRect();
    this.range.value = (1000 * (event.clientX - box.left)) / box.width;
    this.#seek();
    if (this.audio.paused) this.play();
  }

  async play() {
    takeTheFloor(this);
    await this.load();
    await this.audio.play().catch(() => {});
  }

  pause() {
    this.audio.pause();
  }

  toggle() {
    if (this.audio.paused) this.play();
    else this.pause();
  }

  release() {
    this.released = true;
    this.audio.pause();
    if (this.source instanceof Blob && this.audio.src) URL.revokeObjectURL(this.audio.src);
    this.audio.removeAttribute('src');
  }
}
