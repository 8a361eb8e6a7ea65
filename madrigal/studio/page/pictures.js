// Pictures from words, and parts of pictures painted anew.
import { formOf, post, request } from './api.js';
import { Brush } from './brush.js';
import { announce, download, el, field, replace, slider } from './dom.js';
import { dropPlace } from './drop.js';
import { slug } from './format.js';
import { missing, ofKind } from './models.js';
import { problem, problemPlace } from './problem.js';
import { prompting } from './prompting.js';

function blobOf(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Blob([bytes], { type: 'image/png' });
}

async function imageOf(blob) {
  const url = URL.createObjectURL(blob);
  const image = el('img', { src: url });
  try {
    await image.decode();
  } catch {
    throw new Error('This file is no picture that the browser can read; try png or jpg.');
  } finally {
    URL.revokeObjectURL(url); // what is decoded stays
  }
  return image;
}

export async function picturesView({ page, studio }) {
  const models = ofKind(studio, 'pictures');
  if (!models.length) {
    replace(page, el('h1', {}, 'Pictures'), missing('pictures'));
    return undefined;
  }
  let paint = null;
  const asking = prompting({
    models,
    placeholder: 'What is to be seen',
    verb: 'Draw',
    doing: 'Drawing …',
    onbusy: (on) => {
      if (paint) paint.disabled = on;
    },
  });
  const negative = el('input', { name: 'negative', placeholder: 'what is not to be seen', autocomplete: 'off' });
  const n = slider('How many', { name: 'n', min: 1, max: studio.limits.pictures, step: 1, value: 4 });
  const steps = slider('Steps', { name: 'steps', min: 1, max: 48, step: 1, own: { at: 18, text: 'the model’s own' } });
  const guidance = slider('Guidance', {
    name: 'cond_scale',
    min: 1,
    max: 12,
    step: 0.5,
    own: { at: 3, text: 'the model’s own' },
    show: (value) => value.toFixed(1),
  });
  const grid = el('div', { class: 'picture-sets', 'aria-live': 'polite' });
  const inpaint = el('div', { class: 'stack' });

  function shown(blob, title, name) {
    const box = el('figure', { class: 'drawn' });
    const fill = (image) => {
      image.alt = title;
      image.classList.toggle('small-pixels', image.naturalWidth < 200);
      box.append(
        image,
        el(
          'figcaption',
          { class: 'buttons small' },
          el('button', { type: 'button', onclick: () => openBrush(blob) }, 'Paint over'),
          el('button', { type: 'button', onclick: () => download(blob, `${name}.png`) }, 'png'),
        ),
      );
    };
    imageOf(blob).then(fill, (error) => box.append(problem(error)));
    return box;
  }

  /** What `work` makes, shown under its title. */
  async function draw(work, title, seed) {
    const began = performance.now();
    const { data } = await work;
    const took = ((performance.now() - began) / 1000).toFixed(1);
    grid.prepend(
      el(
        'section',
        { class: 'picture-set', 'aria-label': title },
        el('p', { class: 'said' }, title),
        el('p', { class: 'muted number' }, `seed ${seed} · ${took} s`),
        el(
          'div',
          { class: 'picture-grid' },
          data.map((entry, index) =>
            shown(blobOf(entry.b64_json), `${title}, ${index + 1} of ${data.length}`, `${slug(title)}-${index + 1}`),
          ),
        ),
      ),
    );
    const said = `${data.length} ${data.length === 1 ? 'picture' : 'pictures'} in ${took} s`;
    announce(said);
    return said;
  }

  /** How pictures are drawn, whole ones and parts. */
  const drawing = (seed) => ({
    model: asking.model(),
    negative: negative.value.trim() || undefined,
    seed,
    steps: steps.value(),
    cond_scale: guidance.value(),
  });

  const drawPrompt = (signal, seed) => {
    const values = { ...drawing(seed), prompt: asking.words(), n: n.value(), response_format: 'b64_json' };
    return draw(post('/v1/images/generations', values, signal), values.prompt, seed);
  };

  async function openBrush(blob) {
    let image;
    try {
      image = await imageOf(blob);
    } catch (error) {
      asking.problems.show(error);
      return;
    }
    const brush = new Brush(image);
    const trouble = problemPlace();
    const words = el('input', {
      name: 'prompt',
      value: asking.words(),
      placeholder: 'what is to be there',
      autocomplete: 'off',
    });
    paint = el('button', { type: 'button', class: 'primary', disabled: asking.isBusy() }, 'Make the painted part anew');
    paint.addEventListener('click', async () => {
      trouble.clear();
      if (!brush.painted) {
        trouble.show(new Error('Paint over the part that is to be made anew first.'));
        brush.canvas.focus();
        return;
      }
      if (!words.value.trim()) {
        trouble.show(new Error('Say what is to be there first.'));
        words.focus();
        return;
      }
      const mask = await brush.png();
      await asking.run((signal, seed) => {
        const form = formOf({
          image: new File([blob], 'picture.png', { type: blob.type || 'image/png' }),
          mask,
          prompt: words.value.trim(),
          ...drawing(seed),
        });
        const made = request('/v1/images/edits', { method: 'POST', form, signal }).then((answer) => answer.json());
        return draw(made, words.value.trim(), seed);
      });
    });
    replace(
      inpaint,
      el(
        'section',
        { class: 'card inpaint', 'aria-label': 'Paint over' },
        el('h2', {}, 'Paint over'),
        brush.element,
        field('What is to be there', words),
        trouble.element,
        el(
          'div',
          { class: 'buttons' },
          paint,
          el('button', { type: 'button', onclick: () => replace(inpaint) }, 'Close'),
        ),
      ),
    );
    brush.canvas.focus();
  }

  const form = asking.filled(
    drawPrompt,
    field('Without', negative),
    n.element,
    steps.element,
    guidance.element,
    el('div', { class: 'tools' }, ...asking.fields),
  );
  replace(
    page,
    el('h1', {}, 'Pictures'),
    el(
      'div',
      { class: 'two narrow-first' },
      el(
        'div',
        { class: 'stack' },
        form,
        dropPlace({
          label: 'Or a picture of yours to paint over',
          hint: 'Drop a png or jpg here, or choose one.',
          accept: 'image/*',
          onfile: openBrush,
        }),
      ),
      el('div', { class: 'stack' }, inpaint, grid),
    ),
  );
  return asking.leave;
}
