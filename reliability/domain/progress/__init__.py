"""Does training get on? Hangs, stragglers, drops of speed and programs that fall quiet, judged from what ranks tell.

All of it is pure: what is known of the ranks goes in, and out comes what is found, with the rule in words.
"""

from reliability.domain.progress.hang import Hang, RankView, Standing, Suspicion, find_hang, standing, suspect
from reliability.domain.progress.limits import Limit, Pace, Rule, limit_of, quiet_limit, step_limit
from reliability.domain.progress.quiet import Output, Quiet, find_quiet
from reliability.domain.progress.speed import Drop, SpeedRule, judge_speed
from reliability.domain.progress.stragglers import Computed, Straggler, StragglerRule, find_stragglers, spread

__all__ = [
    "Computed",
    "Drop",
    "Hang",
    "Limit",
    "Output",
    "Pace",
    "Quiet",
    "RankView",
    "Rule",
    "SpeedRule",
    "Standing",
    "Straggler",
    "StragglerRule",
    "Suspicion",
    "find_hang",
    "find_quiet",
    "find_stragglers",
    "judge_speed",
    "limit_of",
    "quiet_limit",
    "spread",
    "standing",
    "step_limit",
    "suspect",
]
