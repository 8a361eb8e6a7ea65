// An error, near what caused it and in the server's own words.
import { el, replace } from './dom.js';

export function problem(error, { again } = {}) {
  const box = el('div', { class: 'error', role: 'alert' }, el('p', {}, error.message));
  if (again) box.append(el('button', { type: 'button', onclick: again }, 'Try again'));
  return box;
}

/** A place below a form for what went wrong; counts down where the server said when to come back. */
export function problemPlace() {
  const element = el('div', { class: 'problem-place' });
  let timer = null;
  const clear = () => {
    clearInterval(timer);
    replace(element);
  };
  return {
    element,
    clear,
    /** `form` is searched for the field that the server named. */
    show(error, form) {
      clear();
      if (error.name === 'AbortError') return;
      const box = problem(error);
      element.append(box);
      const named = error.param && form?.querySelector(`[name="${CSS.escape(error.param)}"]`);
      if (named) {
        named.setAttribute('aria-invalid', 'true');
        named.addEventListener('input', () => named.removeAttribute('aria-invalid'), { once: true });
        named.focus();
      }
      if (error.retryAfter) {
        let left = Math.ceil(error.retryAfter);
        const rest = el('p', { class: 'number', 'aria-hidden': 'true' }, `${left} s`);
        box.append(rest);
        timer = setInterval(() => {
          left -= 1;
          rest.textContent = left > 0 ? `${left} s` : 'Now it may work.';
          if (left <= 0) clearInterval(timer);
        }, 1000);
      }
    },
  };
}
