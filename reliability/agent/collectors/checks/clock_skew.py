"""Does this machine's clock agree with the server's?

What the agent knows is looked at: by how much the wall clock is ahead, from the times in the server's answers. Nothing
is decided by a node's clock, so a wrong one only warns: its own log lines and the times of its files are wrong.
"""

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble

OPTIONS: dict[str, Option] = {"most_s": 5.0}


def look(asked: Asked) -> Outcome:
    """Return how far the clock is off. `facts["clock"]`: {"ahead_s", "uncertainty_s"}, None before the first answer."""
    sheet = Sheet(asked.past)
    known = asked.facts.get("clock")
    ahead_s, sure_s = (known.get("ahead_s"), known.get("uncertainty_s")) if isinstance(known, dict) else (None, None)
    if not isinstance(ahead_s, int | float) or not isinstance(sure_s, int | float):
        sheet.unknown("The server has not answered yet.")
        return sheet.outcome("")
    sheet.measured |= {"ahead_s": float(ahead_s), "uncertainty_s": float(sure_s)}
    off_s = max(abs(ahead_s) - max(sure_s, 0.0), 0.0)
    standing = asked.past.held_s("off", off_s > asked.limit("most_s"))
    if standing:
        way = "ahead of" if ahead_s > 0 else "behind"
        text = f"The clock of this machine is {abs(ahead_s):.1f} s {way} the server's (± {sure_s:.1f} s)."
        sheet.stands(Trouble(code="clock-skew", place="clock", evidence=text))
    return sheet.outcome(f"The clock agrees with the server's to within {abs(ahead_s) + sure_s:.1f} s.")
