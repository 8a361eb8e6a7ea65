// Sound as it comes: pieces of pcm are queued one behind the other on the clock of Web Audio.
import { takeTheFloor } from './player.js';
import { floatsOfPcm, wavOfPcm } from './wav.js';

const LEAD = 0.02;

export class StreamPlayer {
  constructor(rate) {
    this.rate = rate;
    this.parts = [];
    this.bytes = 0;
    this.rest = new Uint8Array(0);
    this.next = 0;
    this.firstSound = null;
    this.stopped = false;
    this.sources = new Set();
    this.context = new AudioContext({ sampleRate: rate });
    takeTheFloor(this);
  }

  /** Takes bytes of any length; a sample that is cut in two waits for its other half. */
  push(bytes) {
    let whole = bytes;
    if (this.rest.length) {
      whole = new Uint8Array(this.rest.length + bytes.length);
      whole.set(this.rest);
      whole.set(bytes, this.rest.length);
    }
    const even = whole.length - (whole.length % 2);
    this.rest = whole.slice(even);
    if (!even) return;
    const piece = whole.slice(0, even);
    this.parts.push(piece);
    this.bytes += piece.length;
    if (!this.stopped) this.#queue(floatsOfPcm(piece));
  }

  #queue(floats) {
    const buffer = this.context.createBuffer(1, floats.length, this.rate);
    buffer.copyToChannel(floats, 0);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    this.next = Math.max(this.next, this.context.currentTime + LEAD);
    source.start(this.next);
    this.next += buffer.duration;
    this.sources.add(source);
    source.onended = () => this.sources.delete(source);
    if (this.firstSound === null)
      this.firstSound =
        performance.now() + 1000 * (LEAD + (this.context.outputLatency || this.context.baseLatency || 0));
  }

  get seconds() {
    return this.bytes / 2 / this.rate;
  }

  get remaining() {
    return this.stopped ? 0 : Math.max(0, this.next - this.context.currentTime);
  }

  /** Resolves when the last piece has sounded, or at once when stopped. */
  async ended() {
    while (this.remaining > 0 && !this.stopped)
      await new Promise((resolve) => {
        setTimeout(resolve, Math.min(100, 1000 * this.remaining + 5));
      });
    await this.close();
  }

  pause() {
    this.stopped = true;
    for (const source of this.sources) source.stop();
    this.sources.clear();
    this.close();
  }

  async close() {
    if (this.context.state !== 'closed') await this.context.close();
  }

  pcm() {
    const all = new Uint8Array(this.bytes);
    let at = 0;
    for (const part of this.parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }

  wav() {
    return wavOfPcm(this.pcm(), this.rate);
  }
}
