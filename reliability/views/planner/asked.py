"""What does a request ask the planner, about which job, and what is the answer?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils import timezone

from reliability.domain.planner import answer as answers
from reliability.domain.planner.answer import Answer
from reliability.errors import InvalidInput
from reliability.models import Job
from reliability.plan_forms import PlanForm
from reliability.selectors import plan_inputs, plan_recent
from reliability.selectors.plan_inputs import Known

EXAMPLE = "an example: enter yours"
EXAMPLES = {
    "save_stall": Known(value=0.5, kind="default", told=EXAMPLE),
    "mtbf": Known(value=86_400.0, kind="default", told=f"{EXAMPLE}; one a day"),
    "recovery": Known(value=10.0, kind="default", told=EXAMPLE),
    "downtime": Known(value=0.0, kind="default", told="default: none"),
}
"""What the page begins with where no job is chosen; the rest is as for the command."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and its answer; None where a value cannot be planned with."""

    job: Job | None
    form: PlanForm
    answer: Answer | None
    now: datetime

    @property
    def query(self) -> dict[str, str]:
        """The shortest query that asks the same again."""
        return self.form.address()

    @property
    def address(self) -> str:
        """The same, as it stands in an address."""
        return urlencode(self.query, errors="replace")

    @property
    def faults(self) -> list[tuple[str, str, str]]:
        """What is wrong: field, its label, what would be right."""
        return [
            (name, str(self.form.fields[name].label) if name in self.form.fields else "", str(text))
            for name, texts in self.form.errors.items()
            for text in texts
        ]


def read(request: HttpRequest, *, recent: bool = False) -> Asked:
    """Return the question of a request, by either method; with `recent`, what was measured a moment ago will do."""
    asked = (request.POST if request.method == "POST" else request.GET).dict()
    return answered({str(name): str(value) for name, value in asked.items()}, now=timezone.now(), recent=recent)


def answered(asked: Mapping[str, str], *, now: datetime, recent: bool = False) -> Asked:
    """Return the question and its answer."""
    job = _job(asked)
    measure = plan_recent.lately if recent else plan_recent.anew
    measured = measure(job, now=now) if job else {}
    form = PlanForm(asked, job=job, measured=measured, defaults=plan_inputs.defaults(job) | ({} if job else EXAMPLES))
    return Asked(job, form, _answer(form, job) if form.is_valid() else None, now)


def _job(asked: Mapping[str, str]) -> Job | None:
    name = asked.get("job")
    if name is None:
        return Job.objects.filter(state=Job.State.RUNNING).order_by("name").first()
    return Job.objects.filter(name=name).first() if name and "\x00" not in name else None


def _answer(form: PlanForm, job: Job | None) -> Answer | None:
    question = form.question
    assert question is not None
    if job is not None and question.step_s:
        question = replace(question, period_s=job.every_steps * question.step_s + question.save_stall_s)
    try:
        return answers.answer(question)
    except InvalidInput as error:
        form.blame(error)
        return None


def entries(form: PlanForm) -> list[dict[str, Any]]:
    """Return the values of the form as the page shows them."""
    return [
        {
            "quantity": chosen.quantity,
            "text": chosen.text,
            "source": chosen.source,
            "told": chosen.told,
            "told_more": chosen.told_more,
            "options": chosen.options,
            "errors": form.errors.get(name, []),
        }
        for name, chosen in form.chosen.items()
    ]
