// One chart on one canvas: lines over steps, zoom, a cursor. It knows nothing of runs or of the server.
import { announce, el, replace } from './dom.js';
import { count, figure } from './format.js';
import { logTicks, lowerBound, nearest, range, smoothed, spacing, ticks } from './series.js';
import { colour } from './theme.js';

const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;

export class Chart {
  /** `shared` is the state that all charts of a panel have in common: domain, cursor, log, smoothing, spacing. */
  constructor(title, shared) {
    this.title = title;
    this.shared = shared;
    this.lines = [];
    // An application, or a screen reader would keep the arrow keys for itself.
    this.canvas = el('canvas', { tabindex: '0', role: 'application', 'aria-roledescription': 'chart' });
    this.step = el('span', { class: 'at number' });
    this.readout = el('span', { class: 'readout number' });
    this.element = el(
      'figure',
      { class: 'chart' },
      el('figcaption', {}, el('span', { class: 'name', title }, title), this.step, this.readout),
      this.canvas,
    );
    this.back = document.createElement('canvas');
    this.visible = false;
    this.#listen();
  }

  /** lines: [{label, colour, dashed, points}], the first is the run whose page this is. */
  set(lines) {
    this.lines = lines;
    this.refresh();
  }

  refresh() {
    // Smoothing reaches over steps, not points: what is logged rarely is hardly smoothed.
    this.weights = this.lines.map((line) => this.shared.smoothing ** (spacing(line.points) / this.shared.spacing));
    this.smooth = this.lines.map((line, index) => smoothed(line.points, this.weights[index]));
    const last = this.lines[0]?.points.at(-1);
    this.canvas.setAttribute(
      'aria-label',
      last
        ? `${this.title}: ${figure(last[1])} at step ${count(last[0])}. Arrow keys read values, plus and minus zoom, 0 shows all.`
        : `${this.title}: no points yet`,
    );
    this.canvas.dataset.points = String(this.lines[0]?.points.length ?? 0);
    this.canvas.dataset.last = String(last?.[0] ?? '');
    this.#paintBack();
    this.paint();
  }

  get #size() {
    return [this.canvas.clientWidth, this.canvas.clientHeight];
  }

  #x(step) {
    const [low, high] = this.domain;
    return LEFT + ((step - low) / (high - low)) * (this.#size[0] - LEFT - RIGHT);
  }

  #step(x) {
    const [low, high] = this.domain;
    return low + ((x - LEFT) / (this.#size[0] - LEFT - RIGHT)) * (high - low);
  }

  #y(value) {
    const [low, high] = this.span;
    const part = this.shared.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return this.#size[1] - BOTTOM - part * (this.#size[1] - TOP - BOTTOM);
  }

  #measure() {
    this.domain = this.shared.visibleDomain();
    const values = [];
    this.lines.forEach((line, index) => {
      const drawn = this.weights[index] ? [this.smooth[index], line.points] : [line.points];
      for (const points of drawn) {
        const from = Math.max(0, lowerBound(points, this.domain[0]) - 1);
        const to = Math.min(points.length, lowerBound(points, this.domain[1]) + 1);
        for (let at = from; at < to; at += 1) values.push(points[at][1]);
      }
    });
    this.span = range(values, this.shared.log);
  }

  /** Everything but the cursor, drawn once for each change. */
  #paintBack() {
    const ratio = devicePixelRatio || 1;
    const [width, height] = this.#size;
    if (!width || !height || !this.visible) return;
    for (const canvas of [this.canvas, this.back]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = this.back.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = '11px Inter, system-ui, sans-serif';
    this.#measure();
    if (!this.span) {
      context.fillStyle = colour('muted');
      context.fillText(
        this.shared.log && this.lines.some((line) => line.points.length) ? 'nothing above zero' : 'no points yet',
        LEFT,
        height / 2,
      );
      return;
    }
    this.#axes(context, width, height);
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP - 2, width - LEFT - RIGHT + 2, height - TOP - BOTTOM + 4);
    context.clip();
    // The run of this page is drawn last, over the others.
    for (let index = this.lines.length - 1; index >= 0; index -= 1) {
      const line = this.lines[index];
      if (this.weights[index] > 0.05) this.#line(context, line.points, line.colour, line.dashed, 0.22, 1);
      this.#line(context, this.smooth[index], line.colour, line.dashed, 1, 1.6);
    }
    context.restore();
  }

  #axes(context, width, height) {
    const line = colour('line');
    context.lineWidth = 1;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const wanted = Math.max(2, Math.floor(height / 45));
    for (const value of (this.shared.log ? logTicks : ticks)(...this.span, wanted)) {
      const y = Math.round(this.#y(value)) + 0.5;
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(LEFT, y);
      context.lineTo(width - RIGHT, y);
      context.stroke();
      context.fillStyle = colour('muted');
      context.fillText(figure(value), LEFT - 6, y);
    }
    context.textBaseline = 'alphabetic';
    context.textAlign = 'center';
    for (const step of ticks(...this.domain, Math.max(2, Math.floor(width / 90)))) {
      const x = this.#x(step);
      if (x < LEFT || x > width - RIGHT) continue;
      context.fillText(
        step >= 10_000 ? `${figure(step / 1000).replace(',', '')}k` : figure(step),
        Math.min(x, width - 16),
        height - 6,
      );
    }
  }

  #line(context, points, stroke, dashed, alpha, width) {
    const from = Math.max(0, lowerBound(points, this.domain[0]) - 1);
    const to = Math.min(points.length, lowerBound(points, this.domain[1]) + 1);
    context.globalAlpha = alpha;
    context.strokeStyle = stroke;
    context.fillStyle = stroke;
    context.lineWidth = width;
    context.lineJoin = 'round';
    context.setLineDash(dashed ? [5, 3] : []);
    context.beginPath();
    let drawn = 0;
    for (let at = from; at < to; at += 1) {
      const [step, value] = points[at];
      if (this.shared.log && value <= 0) continue;
      if (drawn) context.lineTo(this.#x(step), this.#y(value));
      else context.moveTo(this.#x(step), this.#y(value));
      drawn += 1;
    }
    context.stroke();
    context.setLineDash([]);
    if (drawn && drawn < 25) {
      for (let at = from; at < to; at += 1) {
        if (this.shared.log && points[at][1] <= 0) continue;
        context.beginPath();
        context.arc(this.#x(points[at][0]), this.#y(points[at][1]), 2.2, 0, 7);
        context.fill();
      }
    }
    context.globalAlpha = 1;
  }

  /** The drawn lines, and the cursor and the zoom over them. */
  paint() {
    if (!this.visible || !this.back.width) return;
    const context = this.canvas.getContext('2d');
    const ratio = devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.back, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [, height] = this.#size;
    if (this.drag && this.span) {
      const [from, to] = [this.drag.from, this.drag.to].sort((a, b) => a - b);
      context.fillStyle = colour('accent-faint');
      context.fillRect(from, TOP, to - from, height - TOP - BOTTOM);
    }
    const cursor = this.shared.cursor;
    if (cursor === null || !this.span) {
      this.#tell(null);
      return;
    }
    const x = this.#x(cursor);
    context.strokeStyle = colour('muted');
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, TOP);
    context.lineTo(Math.round(x) + 0.5, height - BOTTOM);
    context.stroke();
    const read = this.lines.map((line, index) => ({ line, point: nearest(this.smooth[index], cursor) }));
    for (const { line, point } of read) {
      if (!point || (this.shared.log && point[1] <= 0)) continue;
      context.fillStyle = line.colour;
      context.beginPath();
      context.arc(this.#x(point[0]), this.#y(point[1]), 3, 0, 7);
      context.fill();
    }
    this.#tell(read);
  }

  #tell(read) {
    const shown = read ?? this.lines.map((line, index) => ({ line, point: this.smooth[index].at(-1) }));
    const parts = shown
      .filter(({ point }) => point)
      .map(({ line, point }) => {
        const swatch = el('i', { class: line.dashed ? 'swatch dashed' : 'swatch' });
        swatch.style.borderColor = line.colour;
        return el('span', { title: line.label }, swatch, figure(point[1]));
      });
    const step = read?.find(({ point }) => point)?.point[0];
    this.step.textContent = step === undefined ? '' : `step ${count(step)}`;
    this.element.classList.toggle('many', parts.length > 1);
    replace(this.readout, parts);
  }

  #listen() {
    const at = (event) => event.clientX - this.canvas.getBoundingClientRect().left;
    this.canvas.addEventListener('pointerdown', (event) => {
      if (event.button || !this.span || event.pointerType === 'touch') return;
      this.drag = { from: at(event), to: at(event) };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener('pointermove', (event) => {
      if (!this.span) return;
      if (this.drag) this.drag.to = at(event);
      this.shared.moveCursor(this.#step(at(event)));
    });
    this.canvas.addEventListener('pointerup', () => {
      const drag = this.drag;
      this.drag = null;
      if (drag && Math.abs(drag.to - drag.from) > 6) {
        this.shared.zoomTo([this.#step(drag.from), this.#step(drag.to)].sort((a, b) => a - b));
      } else this.paint();
    });
    this.canvas.addEventListener('pointercancel', () => {
      this.drag = null;
    });
    this.canvas.addEventListener('pointerleave', () => {
      if (!this.drag) this.shared.moveCursor(null);
    });
    this.canvas.addEventListener('dblclick', () => this.shared.zoomTo(null));
    this.canvas.addEventListener(
      'wheel',
      (event) => {
        // Only on a chart that was chosen, or with Ctrl: elsewhere the wheel belongs to the page.
        if (!this.span || (document.activeElement !== this.canvas && !event.ctrlKey)) return;
        event.preventDefault();
        this.shared.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.#step(at(event)));
      },
      { passive: false },
    );
    this.canvas.addEventListener('keydown', (event) => this.#key(event));
    this.canvas.addEventListener('blur', () => this.shared.moveCursor(null));
  }

  #key(event) {
    if (!this.span || event.ctrlKey || event.metaKey || event.altKey) return;
    const [low, high] = this.domain;
    const cursor = this.shared.cursor ?? (low + high) / 2;
    const points = this.lines[0]?.points ?? [];
    const move = (by) => {
      if (event.shiftKey) return this.shared.pan(by * 0.2);
      // To the next point, but never less than a pixel: a long run is not walked point by point.
      const least = (high - low) / Math.max(1, this.#size[0] - LEFT - RIGHT);
      const next = nearest(points, cursor + by * least);
      let index = points.indexOf(next);
      if (next && (next[0] - cursor) * by <= 0) index += by;
      const point = points[Math.min(points.length - 1, Math.max(0, index))];
      if (!point) return undefined;
      this.shared.moveCursor(point[0]);
      const read = nearest(this.smooth[0], point[0]);
      return announce(`step ${count(point[0])}: ${figure(read[1])}`);
    };
    const action = {
      ArrowLeft: () => move(-1),
      ArrowRight: () => move(1),
      '+': () => this.shared.zoomBy(0.7, cursor),
      '=': () => this.shared.zoomBy(0.7, cursor),
      '-': () => this.shared.zoomBy(1.4, cursor),
      0: () => this.shared.zoomTo(null),
      Escape: () => this.shared.zoomTo(null),
      l: () => this.shared.toggleLog(),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
