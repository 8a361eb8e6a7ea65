// A recording by the microphone: start, stop, a file.
import { el } from './dom.js';
import { forServer } from './wav.js';

/**
 * A button that records until it is pressed again; `done` gets a wav file, `failed` an error.
 * `release` lets the microphone go and forgets what was recorded.
 */
export function recordButton({ done, failed, longest = 30 }) {
  const label = el('span', {}, 'Record');
  const button = el(
    'button',
    { type: 'button', class: 'record', 'aria-pressed': 'false' },
    el('i', { 'aria-hidden': 'true' }),
    label,
  );
  let recorder = null;
  let starting = false; // until the microphone is there
  let released = false;
  const idle = () => {
    recorder = null;
    button.setAttribute('aria-pressed', 'false');
    label.textContent = 'Record';
  };
  async function start() {
    if (starting) return;
    starting = true;
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch {
      failed(new Error('The browser gives no microphone; allow it for this page, or choose a file instead.'));
      return;
    } finally {
      starting = false;
    }
    const letGo = () => stream.getTracks().forEach((track) => track.stop());
    if (released) {
      letGo();
      return;
    }
    const parts = [];
    recorder = new MediaRecorder(stream);
    const began = Date.now();
    const timer = setInterval(() => {
      const passed = (Date.now() - began) / 1000;
      label.textContent = `Stop (${passed.toFixed(0)} s)`;
      if (passed > longest) recorder?.stop();
    }, 200);
    recorder.ondataavailable = (event) => parts.push(event.data);
    recorder.onstop = async () => {
      clearInterval(timer);
      letGo();
      idle();
      if (released) return;
      try {
        done(await forServer(new File(parts, 'recording.webm')));
      } catch (error) {
        failed(error);
      }
    };
    recorder.start();
    button.setAttribute('aria-pressed', 'true');
  }
  button.addEventListener('click', () => {
    if (recorder) recorder.stop();
    else start();
  });
  if (!navigator.mediaDevices?.getUserMedia || !window.MediaRecorder) button.hidden = true;
  return {
    element: button,
    release() {
      released = true;
      recorder?.stop();
    },
  };
}
