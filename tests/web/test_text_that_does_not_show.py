"""Letters that do not show turn no line round: people's are refused, what nodes and monitors said is written out."""

import sys
import unicodedata
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from reliability import models
from reliability.domain.fields import INVISIBLE, shown

pytestmark = pytest.mark.django_db
TURNED = "see \u202eerofeb\u202c \u2067it\u2069 \u200bthen\ufeff \U000e0041"
JOINING = "\u200c\u200d"
WITH_A_SIGN = range(0x600, 0x606), range(0x890, 0x892), (0x6DD, 0x8E2, 0x110BD, 0x110CD)
"""Format characters that show: Arabic and Kaithi number signs."""


def test_every_letter_that_only_formats_is_known_but_those_that_join_letters_or_show() -> None:
    show = {number for numbers in WITH_A_SIGN for number in numbers} | {ord(each) for each in JOINING}
    silent = {
        number
        for number in range(sys.maxunicode + 1)
        if unicodedata.category(chr(number)) in ("Cf", "Zl", "Zp") and number not in show
    }
    known = {number for number in range(sys.maxunicode + 1) if INVISIBLE.fullmatch(chr(number))}
    assert not silent - known
    assert not any(chr(number).isprintable() for number in known)


def test_text_is_written_out_and_the_rest_stays() -> None:
    assert shown("a\u202eb") == "a[U+202E]b"
    assert shown("\U000e0041") == "[U+E0041]"
    plain = f"löss <b> ↔ “x” {JOINING}\n\t日本"
    assert shown(plain) == plain


def test_what_nodes_and_monitors_said_is_written_out_on_every_page(client_of: Any, cluster: dict[str, Any]) -> None:
    incident, node = cluster["incident"], cluster["node"]
    models.Incident.objects.filter(pk=incident.pk).update(summary=f"sum {TURNED}", reasons=[f"why {TURNED}"])
    models.Node.objects.filter(pk=node.pk).update(health_reason=f"node {TURNED}")
    models.Job.objects.update(state_reason=f"job {TURNED}")
    models.Decision.objects.update(summary=f"dec {TURNED}")
    models.LimitChange.objects.create(values={}, reason=f"lim {TURNED}", changed_by="ada", changed_at=timezone.now())
    models.Finding.objects.create(
        incident=incident, node=incident.node, job=incident.job, code="xid-95", fault_class="hardware",
        action="failover", severity="fatal", evidence=f"evi {TURNED}", found_at=timezone.now(),
    )  # fmt: skip
    pages = [
        (reverse("incident", args=[incident.pk]), "sum", "why", "evi"),
        (reverse("incidents"), "sum"),
        (reverse("node", args=[node.name]), "node"),
        (reverse("job", args=[incident.job.name]), "job"),
        (reverse("limits"), "lim"),
        (reverse("overview"),),
    ]
    client = client_of("approver")
    for address, *told in pages:
        text = client.get(address).content.decode()
        assert not INVISIBLE.search(text), address
        for word in told:
            assert f"{word} see [U+202E]erofeb[U+202C]" in text, (address, word)
    answer = client.get(f"/api/v1/incidents/{incident.pk}/")
    assert "\u202e" in answer.json()["summary"], "programs get it as it is kept"


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\u200f", "\u200b", "\ufeff", "\u2028", "\U000e0041"])
def test_what_people_write_with_such_letters_is_refused_by_field(
    client_of: Any, cluster: dict[str, Any], letter: str
) -> None:
    client, why = client_of("approver"), f"slow{letter}network"
    values = {"silence_s": 10, "proof_s": 3, "lone_node_s": 60, "radius_share": 0.4, "radius_nodes": 6}
    answer = client.post(reverse("limits-set"), {**values, "radius_window_s": 90, "seen": 0, "reason": why})
    assert answer.status_code == 400
    assert f"a letter that does not show, [U+{ord(letter):04X}]" in answer.content.decode()
    body = {"silence_s": 10, "reason": why}
    answer = client.put("/api/v1/limits/", body, content_type="application/json")
    assert (answer.status_code, list(answer.json())) == (400, ["reason"])
    note = reverse("incident-close", args=[cluster["incident"].pk])
    assert client_of("operator").post(note, {"note": why}).status_code == 400
    assert not models.LimitChange.objects.exists()


def test_a_line_of_a_log_may_be_tried_with_them(client_of: Any) -> None:
    line = "\ufeffNVRM: Xid (PCI:0000:37:00): 79, pid=1, GPU has fallen off the bus."
    answer = client_of("viewer").get(reverse("fault-codes"), {"line": line})
    assert answer.status_code == 200
    assert answer.context["tried"].is_valid()
