// A mask painted over a picture: white is made anew. Mouse, finger or arrow keys.
import { announce, el, slider } from './dom.js';
import { colour } from './theme.js';

export class Brush {
  constructor(image) {
    this.image = image;
    this.width = image.naturalWidth ?? image.width;
    this.height = image.naturalHeight ?? image.height;
    this.mask = new OffscreenCanvas(this.width, this.height);
    this.context = this.mask.getContext('2d', { willReadFrequently: true });
    this.past = [];
    this.erasing = false;
    this.at = [this.width / 2, this.height / 2];
    this.canvas = el('canvas', {
      class: 'brush',
      tabindex: '0',
      role: 'application', // or a screen reader would keep the arrow keys for itself
      'aria-roledescription': 'picture to paint on',
      'aria-label': 'Mask of what is made anew. Arrow keys move the brush, Space paints, U takes back, E erases.',
    });
    this.canvas.width = this.width;
    this.canvas.height = this.height;
    const smallest = Math.max(1, Math.round(this.width / 64));
    this.size = slider('Brush', {
      min: smallest,
      max: Math.round(this.width / 2),
      step: 1,
      value: Math.round(this.width / 6),
      show: (value) => `${value} px`,
    });
    this.eraser = el('button', { type: 'button', 'aria-pressed': 'false', onclick: () => this.#erase() }, 'Erase');
    this.element = el(
      'div',
      { class: 'brush-tools' },
      this.canvas,
      this.size.element,
      el(
        'div',
        { class: 'buttons' },
        this.eraser,
        el('button', { type: 'button', onclick: () => this.undo() }, 'Undo'),
        el('button', { type: 'button', onclick: () => this.#clear() }, 'Clear'),
      ),
    );
    this.#listen();
    this.draw();
  }

  #erase() {
    this.erasing = !this.erasing;
    this.eraser.setAttribute('aria-pressed', String(this.erasing));
  }

  #keep() {
    this.past.push(this.context.getImageData(0, 0, this.width, this.height));
    if (this.past.length > 50) this.past.shift();
  }

  undo() {
    const before = this.past.pop();
    if (before) this.context.putImageData(before, 0, 0);
    announce(before ? 'Taken back.' : 'There is nothing to take back.');
    this.draw();
  }

  #clear() {
    this.#keep();
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw();
  }

  #stroke(from, to) {
    this.context.globalCompositeOperation = this.erasing ? 'destination-out' : 'source-over';
    this.context.strokeStyle = '#fff';
    this.context.fillStyle = '#fff';
    this.context.lineCap = 'round';
    this.context.lineWidth = this.size.value();
    this.context.beginPath();
    this.context.arc(...to, this.size.value() / 2, 0, 7);
    this.context.fill();
    this.context.beginPath();
    this.context.moveTo(...from);
    this.context.lineTo(...to);
    this.context.stroke();
    this.context.globalCompositeOperation = 'source-over';
    this.draw();
  }

  draw(withBrush = false) {
    const context = this.canvas.getContext('2d');
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, 0, 0, this.width, this.height);
    const veil = new OffscreenCanvas(this.width, this.height);
    const paint = veil.getContext('2d');
    paint.drawImage(this.mask, 0, 0);
    paint.globalCompositeOperation = 'source-in';
    paint.fillStyle = colour('accent');
    paint.fillRect(0, 0, this.width, this.height);
    context.globalAlpha = 0.6;
    context.drawImage(veil, 0, 0);
    context.globalAlpha = 1;
    if (withBrush) {
      context.strokeStyle = colour('ink');
      context.lineWidth = Math.max(1, this.width / 200);
      context.beginPath();
      context.arc(...this.at, this.size.value() / 2, 0, 7);
      context.stroke();
    }
  }

  #listen() {
    const point = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [
        ((event.clientX - box.left) / box.width) * this.width,
        ((event.clientY - box.top) / box.height) * this.height,
      ];
    };
    let last = null;
    this.canvas.addEventListener('pointerdown', (event) => {
      if (event.button) return;
      this.#keep();
      last = point(event);
      this.canvas.setPointerCapture(event.pointerId);
      this.#stroke(last, last);
    });
    this.canvas.addEventListener('pointermove', (event) => {
      this.at = point(event);
      if (!last) {
        this.draw(true);
        return;
      }
      this.#stroke(last, this.at);
      last = this.at;
    });
    const end = () => {
      last = null;
    };
    this.canvas.addEventListener('pointerup', end);
    this.canvas.addEventListener('pointercancel', end);
    this.canvas.addEventListener('pointerleave', () => this.draw());
    this.canvas.addEventListener('keydown', (event) => this.#key(event));
    this.canvas.addEventListener('blur', () => this.draw());
    this.canvas.addEventListener('focus', () => this.draw(this.canvas.matches(':focus-visible')));
  }

  #key(event) {
    const step = Math.max(1, this.size.value() / 3);
    const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (move)
      this.at = [
        Math.max(0, Math.min(this.width, this.at[0] + move[0])),
        Math.max(0, Math.min(this.height, this.at[1] + move[1])),
      ];
    else if (event.key === ' ') {
      this.#keep();
      this.#stroke(this.at, this.at);
    } else if (event.key === 'u') this.undo();
    else if (event.key === 'e') this.#erase();
    else return;
    event.preventDefault();
    this.draw(true);
  }

  get painted() {
    return this.context
      .getImageData(0, 0, this.width, this.height)
      .data.some((value, index) => index % 4 === 3 && value > 127);
  }

  /** Black and white, as the server wants it: what is half covered at an edge counts by its half. */
  async png() {
    const out = new OffscreenCanvas(this.width, this.height);
    const context = out.getContext('2d');
    const data = this.context.getImageData(0, 0, this.width, this.height);
    for (let at = 0; at < data.data.length; at += 4) {
      const value = data.data[at + 3] > 127 ? 255 : 0;
      data.data.set([value, value, value, 255], at);
    }
    context.putImageData(data, 0, 0);
    return new File([await out.convertToBlob({ type: 'image/png' })], 'mask.png', { type: 'image/png' });
  }
}
