"""Sortable, paged tables of list pages. Cells that need more than text are templates under templates/cells/."""

from typing import Any, Self

import django_tables2 as tables
from django.core.paginator import EmptyPage, PageNotAnInteger, Paginator
from django.http import HttpRequest

PAGE_ROWS = 50


class NearestPage(Paginator):  # type: ignore[type-arg]
    """Answers a page number that is none, or too high, by the nearest page there is."""

    def page(self, number: int | str) -> Any:
        """Return the page, the first, or the last."""
        try:
            return super().page(self.validate_number(number))
        except PageNotAnInteger:
            return super().page(1)
        except EmptyPage:
            return super().page(self.num_pages if str(number).isdecimal() and int(number) > 0 else 1)


class StyledTable(tables.Table):
    """A table with a caption, scopes and the look of the CSS kit."""

    caption = ""

    class Meta:
        template_name = "parts/table.html"
        attrs = {"class": "table table-vcenter card-table"}

    def configured(self, request: HttpRequest) -> Self:
        """Sort and page as the address asks; what it asks for and is not there becomes the nearest page that is."""
        asked = ",".join(request.GET.getlist(self.prefixed_order_by_field)).split(",")
        order = [alias for alias in asked if alias.removeprefix("-") in self.base_columns]
        if order:
            self.order_by = order
        self.request = request
        self.paginate(NearestPage, per_page=PAGE_ROWS, page=request.GET.get(self.prefixed_page_field, 1))
        return self


def _cell(template: str, **kwargs: Any) -> tables.TemplateColumn:
    return tables.TemplateColumn(template_name=f"cells/{template}.html", **kwargs)


class NodeTable(StyledTable):
    """All nodes."""

    caption = "Nodes, what they are for, their condition and when they were last heard"
    name = _cell("node", verbose_name="Node")
    health = _cell("node_health", order_by=("worst", "name"))
    role = _cell("node_role")
    place = _cell("node_place", verbose_name="Runs", orderable=False)
    runtime = tables.Column()
    last_seen_at = _cell("node_seen", verbose_name="Last heard")

    class Meta(StyledTable.Meta):
        empty_text = "No node matches."


class IncidentTable(StyledTable):
    """All incidents."""

    caption = "Incidents, newest first, with class and action"
    summary = _cell("incident", verbose_name="Incident", order_by=("id",))
    fault_class = _cell("incident_class", verbose_name="Class")
    action = _cell("incident_action")
    job = _cell("job", order_by=("job__name",))
    node = _cell("incident_node", order_by=("node__name",))
    opened_at = _cell("incident_opened", verbose_name="Opened")
    closed_at = _cell("incident_closed", verbose_name="State")
    judged = _cell("incident_verdict", verbose_name="Was it right?", accessor="pk", orderable=False)

    class Meta(StyledTable.Meta):
        empty_text = "No incident matches."


class DecisionTable(StyledTable):
    """All decisions."""

    caption = "Decisions, newest first, with how each was taken and whether it was right"
    id = _cell("decision", verbose_name="Decision")
    action = _cell("decision_action", verbose_name="Action and mode")
    job = _cell("job", order_by=("job__name",))
    node = _cell("incident_node", order_by=("node__name",))
    at = _cell("decision_at", verbose_name="Decided")
    verdict = _cell("decision_verdict", verbose_name="Was it right?")

    class Meta(StyledTable.Meta):
        empty_text = "No decision matches."


class FailoverTable(StyledTable):
    """All recoveries."""

    caption = "Recoveries, newest first, with state and time taken"
    id = _cell("failover", verbose_name="Recovery")
    state = _cell("failover_state")
    job = _cell("job", order_by=("job__name",))
    standby = _cell("failover_nodes", verbose_name="Nodes", orderable=False)
    restore_step = _cell("failover_restore", verbose_name="Restored")
    decided_by = tables.Column(verbose_name="Decided by", default="nobody yet")
    created_at = _cell("failover_times", verbose_name="Began")

    class Meta(StyledTable.Meta):
        empty_text = "No recovery matches."
