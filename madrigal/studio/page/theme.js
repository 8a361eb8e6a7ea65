// Dark, light, or as the system is: the choice of the reader stays in this browser.
const NAME = 'madrigal-theme';
const ORDER = ['auto', 'light', 'dark'];

function apply(theme, button) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = { auto: '◐ Auto', light: '○ Light', dark: '● Dark' }[theme];
  button.setAttribute('aria-label', `Colours: ${theme}. Change`);
  document.dispatchEvent(new Event('themechange'));
}

export function setUpTheme(button) {
  let theme = localStorage.getItem(NAME) ?? 'auto';
  if (!ORDER.includes(theme)) theme = 'auto';
  apply(theme, button);
  button.addEventListener('click', () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem(NAME, theme);
    apply(theme, button);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () =>
    document.dispatchEvent(new Event('themechange')),
  );
}

/** A colour of the sheet as it is now, light or dark, for what is drawn and not styled. */
export function colour(name) {
  if (!found.size) document.body.append(probe);
  if (!found.has(name)) {
    probe.style.color = `var(--${name})`;
    found.set(name, getComputedStyle(probe).color);
  }
  return found.get(name);
}

const found = new Map();
const probe = document.createElement('span');
probe.hidden = true;
document.addEventListener('themechange', () => found.clear());

/** The colour of the n-th of several runs. */
export const runColour = (index) => colour(`run-${index % 6}`);
