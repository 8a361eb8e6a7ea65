// The API key: asked for once, kept for this tab only.
const NAME = 'madrigal-key';
let asking = null;

export const storedKey = () => sessionStorage.getItem(NAME);

/** Resolves when there is another key than `refused`; several callers share one dialog. */
export function askForKey(refused) {
  if (storedKey() !== refused) return Promise.resolve();
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById('key');
    const input = document.getElementById('key-input');
    document.getElementById('key-error').textContent = refused ? 'The server does not know that key.' : '';
    input.value = '';
    const again = (event) => event.preventDefault();
    dialog.addEventListener('cancel', again);
    dialog.querySelector('form').addEventListener(
      'submit',
      () => {
        sessionStorage.setItem(NAME, input.value.trim());
        dialog.removeEventListener('cancel', again);
        asking = null;
        resolve();
      },
      { once: true },
    );
    dialog.showModal();
    input.focus();
  });
  return asking;
}
