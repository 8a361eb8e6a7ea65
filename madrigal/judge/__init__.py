"""How good is it: measures, recognisers and reports that know no system, only waves, codes and texts."""

from madrigal.judge.chart import Series
from madrigal.judge.codec import Utterance, evaluate_codec
from madrigal.judge.codec_page import codec_page, write_report
from madrigal.judge.curves import read_curves
from madrigal.judge.html import Page, Sound
from madrigal.judge.opus import opus_round_trip
from madrigal.judge.recognition import Recogniser, find_recogniser, word_error_rate
from madrigal.judge.report import Report
from madrigal.judge.table import show

__all__ = [
    "Page",
    "Recogniser",
    "Report",
    "Series",
    "Sound",
    "Utterance",
    "codec_page",
    "evaluate_codec",
    "find_recogniser",
    "opus_round_trip",
    "read_curves",
    "show",
    "word_error_rate",
    "write_report",
]
