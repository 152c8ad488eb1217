"""Whether a program may do what it says it wants to do. The sandbox is the boundary; this is a judgement of words."""

from adapters.risk.judgement import Intent, Judgement, judge, judge_diff

__all__ = ["Intent", "Judgement", "judge", "judge_diff"]
