"""How good is it: measures, recognisers and reports that know no system, only waves, codes and texts."""

from madrigal.judge.chart import Series
from madrigal.judge.codec import Utterance, evaluate_codec
from madrigal.judge.codec_page import codec_page, write_report
from madrigal.judge.continuation import Continuation, ContinuationReport, StagePerplexity, evaluate_continuations
from madrigal.judge.continuation_page import continuation_page, show_continuations, write_continuations
from madrigal.judge.curves import read_curves
from madrigal.judge.html import Page, Sound
from madrigal.judge.language import Perplexity, baselines, ngram_perplexity, offset_by_kind
from madrigal.judge.opus import opus_round_trip
from madrigal.judge.recognition import Recogniser, find_recogniser, word_error_rate
from madrigal.judge.report import Report
from madrigal.judge.speakers import SpeakerJudge, find_speaker_judges
from madrigal.judge.table import show
from madrigal.judge.vosk import VoskRecogniser, find_second_recogniser
from madrigal.judge.words import WordList, agreement, find_word_list, validity

__all__ = [
    "Continuation",
    "ContinuationReport",
    "Page",
    "Perplexity",
    "Recogniser",
    "Report",
    "Series",
    "Sound",
    "SpeakerJudge",
    "StagePerplexity",
    "Utterance",
    "VoskRecogniser",
    "WordList",
    "agreement",
    "baselines",
    "codec_page",
    "continuation_page",
    "evaluate_codec",
    "evaluate_continuations",
    "find_recogniser",
    "find_second_recogniser",
    "find_speaker_judges",
    "find_word_list",
    "ngram_perplexity",
    "offset_by_kind",
    "opus_round_trip",
    "read_curves",
    "show",
    "show_continuations",
    "validity",
    "word_error_rate",
    "write_continuations",
    "write_report",
]
