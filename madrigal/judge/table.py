"""A report as tables: the same cells on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from madrigal.judge.estimates import Estimate
from madrigal.judge.metrics import METRICS, WORD_METRICS, Metric
from madrigal.judge.report import Report, System

SHOWN: dict[str, Metric] = {**METRICS, "wer": WORD_METRICS["wer"]}


def figures(name: str, estimate: Estimate) -> tuple[str, str]:
    """An estimate as ("3.21", "±0.05"), in the digits of its metric; error rates in percent."""
    metric, scale = (METRICS | WORD_METRICS)[name], 100.0 if name in WORD_METRICS else 1.0
    mean = f"{estimate.mean * scale:.{metric.digits}f}"
    half = estimate.half_width
    return mean, "" if half is None else f"±{half * scale:.{metric.digits}f}"


def shown_metrics(report: Report) -> list[str]:
    """The metrics that have a column, in the order of the tables."""
    present = set(report.metric_names)
    return [name for name in SHOWN if name in present]


def beats_opus(system: System, name: str) -> bool | None:
    """Whether a codec is better (True) or worse than Opus beyond the 95 % interval of the paired difference."""
    difference = system.versus_opus.get(name)
    if difference is None or difference.low is None or difference.high is None or difference.low * difference.high <= 0:
        return None
    return (difference.mean > 0) == SHOWN[name].higher_is_better


def quality_table(report: Report) -> Table:
    """One row for each system: measured rate, then means with half of their 95 % intervals below them.

    A codec's figure is green where it is better than Opus at the same rate beyond doubt, red where it is worse.
    """
    table = Table(title=report.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("kbps", justify="right")
    names = shown_metrics(report)
    for name in names:
        table.add_column(SHOWN[name].title, justify="right", min_width=6)
    for system in report.systems:
        rate = "" if system.measured_kbps is None else f"{system.measured_kbps:.2f}"
        cells = [_terminal_cell(system, name) for name in names]
        table.add_row(Text(system.told), rate, *cells, end_section=system is report.systems[0] or _last(report, system))
    return table


def _last(report: Report, system: System) -> bool:
    """Whether the next system has another rate, so that a line is drawn below this one."""
    following = report.systems[report.systems.index(system) + 1 :]
    return bool(following) and following[0].kbps != system.kbps


def _terminal_cell(system: System, name: str) -> Text:
    if name not in system.metrics:
        return Text("–", style="dim")
    mean, spread = figures(name, system.metrics[name])
    style = {True: "bold green", False: "red", None: ""}[beats_opus(system, name)]
    return Text.assemble((mean, style), (f"\n{spread}" if spread else "", "dim"))


def codebook_rows(report: Report) -> list[tuple[str, str, str, str, bool]]:
    """(quantizer, perplexity, share of the size, entries used, healthy) of the codec at its highest rate."""
    richest = max(report.systems, key=lambda system: len(system.codebooks))
    return [
        (
            str(index + 1),
            f"{codebook.perplexity:.0f} of {codebook.size}",
            f"{100 * codebook.perplexity / codebook.size:.0f} %",
            f"{100 * codebook.usage:.0f} %",
            codebook.healthy,
        )
        for index, codebook in enumerate(richest.codebooks)
    ]


def codebook_table(report: Report) -> Table:
    table = Table(title="Codebooks, the coarsest first", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for header in ("quantizer", "perplexity", "of its size", "entries used", ""):
        table.add_column(header, justify="right" if header else "left")
    for *cells, healthy in codebook_rows(report):
        table.add_row(*cells, "" if healthy else Text("under half", style="bold red"))
    return table


def remarks(report: Report) -> Sequence[str]:
    """What a reader must know beside the figures: the set, what was left out, how things were measured."""
    rates = " and ".join(f"{rate / 1000:g} kHz" for rate in report.sample_rates)
    said = [f"{report.utterances} utterances, {report.seconds:.0f} seconds, {rates}; ± is half of the 95 % interval."]
    said += [f"{item.measure} was left out: run `{item.install}`." for item in report.left_out]
    return [*said, *report.notes]


def show(report: Report, console: Console | None = None) -> None:
    """Print the report on a terminal."""
    parts: list[Table | Text] = [quality_table(report)]
    if any(system.codebooks for system in report.systems):
        parts.append(codebook_table(report))
    parts += [Text(remark, style="dim") for remark in remarks(report)]
    (console or Console()).print(Group(*parts))
