// A place to drop a file on, that is also an ordinary file field.
import { el } from './dom.js';

export function dropPlace({ label, hint, accept, onfile, extra }) {
  const input = el('input', { type: 'file', accept, onchange: () => input.files[0] && onfile(input.files[0]) });
  const place = el(
    'div',
    { class: 'drop' },
    el('label', { class: 'field' }, el('span', {}, label), input),
    el('small', {}, hint),
    extra,
  );
  place.addEventListener('dragover', (event) => {
    event.preventDefault();
    place.classList.add('over');
  });
  place.addEventListener('dragleave', () => place.classList.remove('over'));
  place.addEventListener('drop', (event) => {
    event.preventDefault();
    place.classList.remove('over');
    const [file] = event.dataTransfer.files;
    if (file) onfile(file);
  });
  return place;
}
