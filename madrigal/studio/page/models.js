// Which models the studio has loaded, and what to do where one is missing.
import { command, el, empty } from './dom.js';

export const ofKind = (studio, kind) => studio.models.filter((model) => model.kind === kind);

const HOW = {
  speech: [
    'No voice is loaded',
    'Start the studio with a run or an exported folder of a voice:',
    'madrigal studio runs --voice-run runs/voice',
  ],
  pictures: [
    'No model of pictures is loaded',
    'Train a Muse in the folder of the runs; when it has learned something, it can be asked here:',
    'madrigal train muse/cpu data=FOLDER-OF-PICTURES --run runs/muse',
  ],
  music: [
    'No model of music is loaded',
    'Train a MusicLM in the folder of the runs; when it has learned something, it can be asked here:',
    'madrigal train musiclm/cpu data=FOLDER-OF-MUSIC --run runs/music',
  ],
};

/** Instead of a form that could not work. */
export function missing(kind) {
  const [title, sentence, how] = HOW[kind];
  return empty(title, el('p', {}, sentence), command(how));
}

/** A choice of models, or nothing where there is only one. */
export function modelField(models) {
  const select = el(
    'select',
    { name: 'model' },
    models.map((model) => el('option', { value: model.id }, model.id)),
  );
  return {
    select,
    element: models.length > 1 ? el('label', { class: 'field' }, el('span', {}, 'Model'), select) : null,
  };
}

/** A seed that can be said again: left empty, one is drawn and shown with the result. */
export const freshSeed = () => Math.floor(Math.random() * 2 ** 31);
