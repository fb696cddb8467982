"""Reductions: the share of the memory bandwidth."""

from hpcmm.report.chapters.chapter import Answer, chapter
from hpcmm.report.chapters.ladder import best, ladders, order
from hpcmm.report.chapters.sizes import over_sizes, rate_against_size

ANSWERS = (Answer(best, each_device=True), Answer(order, each_device=True), Answer(over_sizes, "rungs", True))
CHAPTER = chapter("reductions", figures=(rate_against_size, ladders), answers=ANSWERS)
