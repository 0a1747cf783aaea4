"""Foreign monitors: what does DCGM, gpud or the node problem detector say, and what of it is new?

Read first: `words` (what they can say), then the readers `exposition`, `metrics`, `gpud`, `problems`, then
`remembering` (from what was said to what is new since the last time).
"""

from reliability.domain.monitors.reading import read_json, read_text
from reliability.domain.monitors.remembering import Advance, Found, advance
from reliability.domain.monitors.words import Condition, Event, Item, Reading

__all__ = ["Advance", "Condition", "Event", "Found", "Item", "Reading", "advance", "read_json", "read_text"]
