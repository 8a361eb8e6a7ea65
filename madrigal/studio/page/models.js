// Which models the studio has loaded, and what to do where one is missing.
import { command, el, empty } from './dom.js';

export const ofKind = (studio, ...kinds) => (studio.models ?? []).filter((model) => kinds.includes(model.kind));

const HOW = {
  speech: ['No voice is loaded', 'Start the studio with a run of Voicebox or SPEAR-TTS:', 'madrigal studio runs --voice-run runs/voice'],
  pictures: ['No model of pictures is loaded', 'Train Muse, then start the studio with its run:', 'madrigal train muse/cpu data=FOLDER-OF-PICTURES --run runs/muse\nmadrigal studio runs --voice-run runs/muse'],
  music: ['No model of music is loaded', 'Train MusicLM, then start the studio with its run:', 'madrigal train musiclm/cpu data=FOLDER-OF-MUSIC --run runs/music\nmadrigal studio runs --voice-run runs/music'],
};

/** Instead of a form that could not work. */
export function missing(kind) {
  const [title, sentence, how] = HOW[kind];
  return empty(title, el('p', {}, sentence), command(how));
}

/** A choice of models, or nothing where there is only one. */
export function modelField(models) {
  const select = el('select', { name: 'model' }, models.map((model) => el('option', { value: model.id }, model.id)));
  return { select, element: models.length > 1 ? el('label', { class: 'field' }, el('span', {}, 'Model'), select) : null };
}

/** A seed that can be said again: left empty, one is drawn and shown with the result. */
export const freshSeed = () => Math.floor(Math.random() * 2 ** 31);
