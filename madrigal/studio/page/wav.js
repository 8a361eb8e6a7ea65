// Sound in the browser: wav files from samples, and any recording as one.

/** A wav file (16 bit, mono) of s16le bytes. */
export function wavOfPcm(bytes, rate) {
  const header = new DataView(new ArrayBuffer(44));
  const ascii = (at, text) => [...text].forEach((letter, index) => header.setUint8(at + index, letter.charCodeAt(0)));
  ascii(0, 'RIFF');
  header.setUint32(4, 36 + bytes.byteLength, true);
  ascii(8, 'WAVEfmt ');
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, rate, true);
  header.setUint32(28, 2 * rate, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  ascii(36, 'data');
  header.setUint32(40, bytes.byteLength, true);
  return new Blob([header, bytes], { type: 'audio/wav' });
}

export function floatsOfPcm(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const floats = new Float32Array(bytes.byteLength >> 1);
  for (let index = 0; index < floats.length; index += 1) floats[index] = view.getInt16(2 * index, true) / 32768;
  return floats;
}

export function pcmOfFloats(floats) {
  const view = new DataView(new ArrayBuffer(2 * floats.length));
  floats.forEach((value, index) =>
    view.setInt16(2 * index, Math.round(32767 * Math.max(-1, Math.min(1, value))), true),
  );
  return new Uint8Array(view.buffer);
}

/** {samples: Float32Array mono, rate, seconds}; throws a sentence for what is no sound. */
export async function decoded(blob) {
  const context = new OfflineAudioContext(1, 1, 48_000);
  let buffer;
  try {
    buffer = await context.decodeAudioData(await blob.arrayBuffer());
  } catch {
    throw new Error('This file is no sound that the browser can read; try wav, flac, mp3, ogg or opus.');
  }
  const samples = new Float32Array(buffer.length);
  for (let channel = 0; channel < buffer.numberOfChannels; channel += 1) {
    const data = buffer.getChannelData(channel);
    for (let index = 0; index < samples.length; index += 1) samples[index] += data[index] / buffer.numberOfChannels;
  }
  return { samples, rate: buffer.sampleRate, seconds: buffer.duration };
}

const READ_BY_SERVER = /\.(wav|flac|mp3|ogg|opus)$/i;

/** The file itself where the server reads its kind, else the same sound as wav (browsers record webm). */
export async function forServer(file) {
  if (READ_BY_SERVER.test(file.name ?? '')) return file;
  const { samples, rate } = await decoded(file);
  const wav = wavOfPcm(pcmOfFloats(samples), rate);
  return new File([wav], `${(file.name ?? 'recording').replace(/\.[^.]*$/, '')}.wav`, { type: 'audio/wav' });
}

/** [low, high] of each of `columns` parts, for drawing. */
export function peaks(samples, columns) {
  const found = new Float32Array(2 * columns);
  const per = samples.length / columns;
  for (let column = 0; column < columns; column += 1) {
    let low = 0;
    let high = 0;
    const to = Math.min(samples.length, Math.ceil((column + 1) * per));
    for (let index = Math.floor(column * per); index < to; index += 1) {
      if (samples[index] < low) low = samples[index];
      if (samples[index] > high) high = samples[index];
    }
    found[2 * column] = low;
    found[2 * column + 1] = high;
  }
  return found;
}
