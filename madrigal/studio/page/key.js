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
    const open = () => {
      dialog.returnValue = '';
      dialog.showModal();
      input.focus();
    };
    // A browser lets nobody forbid Escape twice; the dialog that closed without a key opens again.
    const closed = () => {
      if (dialog.returnValue !== 'ok') {
        open();
        return;
      }
      dialog.removeEventListener('close', closed);
      sessionStorage.setItem(NAME, input.value.trim());
      asking = null;
      resolve();
    };
    dialog.addEventListener('close', closed);
    open();
  });
  return asking;
}
