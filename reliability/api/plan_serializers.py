"""The JSON form of plans, kept or only asked for. The answer is made by the domain; what is here tells the schema."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from reliability.api.serializers import NameField
from reliability.models import Plan
from reliability.selectors.plan_history import PlanResult

RESULT = "result_now"
"""Attribute of a plan row: what came of it."""


@extend_schema_field({"oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}], "example": "7.9h"})
class TimeField(serializers.Field[Any, Any, Any, Any]):
    """Seconds, or text as 30s, 5m, 7.9h, 12d."""


def optional_time(help_text: str) -> TimeField:
    """Return a time that may be left out."""
    return TimeField(required=False, allow_null=True, help_text=help_text)


def optional_number(help_text: str) -> serializers.FloatField:
    """Return a number that may be left out."""
    return serializers.FloatField(required=False, allow_null=True, help_text=help_text)


def optional_count(help_text: str) -> serializers.IntegerField:
    """Return a whole number that may be left out."""
    return serializers.IntegerField(required=False, allow_null=True, help_text=help_text)


class PlanRequestSerializer(serializers.Serializer[Any]):
    """What is asked; times may be named with _s too. With a job, what is left out is what is known of the job.

    How often faults come is told in one way: mtbf; failures_per_day; per_1000_node_days with nodes; faults with their
    exposure.
    """

    job = serializers.CharField(required=False, allow_null=True, help_text="take what is left out from this job")
    save_stall = optional_time("how long one save blocks training")
    mtbf = optional_time("mean time between faults of the whole job while it runs, or 'none'")
    recovery = optional_time("from the restart until training goes on")
    target = optional_number("share of time that must count, such as 0.97")
    failures_per_day = optional_number("faults in 24 hours of running")
    per_1000_node_days = optional_number("faults in 1000 node-days; needs nodes")
    faults = optional_count("faults that were counted in the exposure")
    exposure = optional_time("running time in which the faults were counted")
    observed_nodes = optional_count("nodes of the job when the faults were counted; nodes unless given")
    prior = serializers.ChoiceField(choices=["jeffreys", "fleet"], required=False, help_text="jeffreys unless given")
    downtime = optional_time("until the restart: detection, queue, swap of nodes")
    drain = optional_time("from the end of the stall until the copy on storage is durable")
    drain_ssd = optional_time("the same for the copy on the SSD")
    node_share = optional_number("share of faults that lose the node; 1 unless given")
    memory_share = optional_number("share of faults that lose the host's memory but not its SSD; 0 unless given")
    cluster_availability = optional_number("share of time in which the job can run at all, not counted in downtime")
    planned_stops_per_week = optional_number("stops in a week in which the job can run, a save before each")
    step_time = optional_time("time of one training step")
    nodes = optional_count("nodes of the job")
    standbys = optional_count("nodes that stand by")
    repair = optional_time("mean time until a lost node can be used again")
    period = optional_time("the period in use, start to start, to compare with")


class SharesSerializer(serializers.Serializer[Any]):
    """Where the time goes; adds up to 1."""

    useful = serializers.FloatField()
    saving = serializers.FloatField()
    rollback = serializers.FloatField()
    recovery = serializers.FloatField()
    downtime = serializers.FloatField()


class LimitsSerializer(serializers.Serializer[Any]):
    """What one input alone would have to be for the target; null: that is not enough, or nothing limits it."""

    save_stall_s = serializers.FloatField(allow_null=True, help_text="at most")
    recovery_s = serializers.FloatField(allow_null=True, help_text="at most")
    mtbf_s = serializers.FloatField(allow_null=True, help_text="at least")


class ModelPlanSerializer(serializers.Serializer[Any]):
    """The best period by one model. Periods count from start to start of two saves."""

    model = serializers.CharField()
    period_s = serializers.FloatField(allow_null=True, help_text="null without faults: the longer, the better")
    work_s = serializers.FloatField(allow_null=True, help_text="the period without the stall; null where none is left")
    ettr_max = serializers.FloatField(help_text="effective training rate at the best period")
    feasible = serializers.BooleanField(help_text="whether the target is reachable")
    interval_s = serializers.ListField(
        child=serializers.FloatField(allow_null=True),
        min_length=2,
        max_length=2,
        allow_null=True,
        help_text="[low, high] of the periods that keep the target; high is null where it is open",
    )
    shares = SharesSerializer()
    limits = LimitsSerializer()


class StepsSerializer(serializers.Serializer[Any]):
    """The period in steps."""

    every_steps = serializers.IntegerField()
    period_s = serializers.FloatField()
    ettr = serializers.FloatField()
    interval = serializers.ListField(child=serializers.IntegerField(allow_null=True), allow_null=True)


class PresentSerializer(serializers.Serializer[Any]):
    """What the period in use gives."""

    period_s = serializers.FloatField()
    ettr = serializers.FloatField()
    ettr_gain = serializers.FloatField(help_text="what the recommended period adds")
    keeps_target = serializers.BooleanField()


class StandbysSerializer(serializers.Serializer[Any]):
    """How often a lost node finds no standby."""

    standbys = serializers.IntegerField()
    load = serializers.FloatField(help_text="nodes in repair on average")
    p_no_standby = serializers.FloatField()
    share_short = serializers.FloatField()
    mean_wait_s = serializers.FloatField()
    mean_downtime_s = serializers.FloatField()
    for_one_percent = serializers.IntegerField(allow_null=True)


class CredibleSerializer(serializers.Serializer[Any]):
    """Where the results lie with probability `level`, given the counted faults: [low, high] each."""

    level = serializers.FloatField()
    mtbf_s = serializers.ListField(child=serializers.FloatField())
    period_s = serializers.ListField(child=serializers.FloatField())
    ettr_max = serializers.ListField(child=serializers.FloatField())
    p_target = serializers.FloatField(help_text="probability that the target is reachable")


class PairSerializer(serializers.Serializer[Any]):
    """A stall and a recovery with which the target is just reachable."""

    save_stall_s = serializers.FloatField()
    recovery_s = serializers.FloatField()


class LeversSerializer(LimitsSerializer):
    """The limits, and what nodes and standbys would have to be; the pair that costs least."""

    nodes = serializers.IntegerField(allow_null=True, help_text="at most")
    standbys = serializers.IntegerField(allow_null=True, help_text="at least")
    cheapest = PairSerializer(allow_null=True)


class GainSerializer(serializers.Serializer[Any]):
    """What halving one input adds."""

    name = serializers.CharField()
    ettr_gain = serializers.FloatField()


class ComparisonSerializer(serializers.Serializer[Any]):
    """Another rule for the period."""

    name = serializers.CharField()
    period_s = serializers.FloatField()
    ettr = serializers.FloatField(help_text="exact rate at that period")
    their_ettr = serializers.FloatField(allow_null=True, help_text="the rate that the rule itself tells")


class LostSerializer(serializers.Serializer[Any]):
    """Seconds lost in a day."""

    saving = serializers.FloatField()
    rollback = serializers.FloatField()
    recovery = serializers.FloatField()
    downtime = serializers.FloatField()


class LawSerializer(serializers.Serializer[Any]):
    """What another law of the time between faults, with the same mean, makes of the plan."""

    name = serializers.CharField()
    ettr = serializers.FloatField(help_text="rate at the recommended period")
    best_period_s = serializers.FloatField()
    best_ettr = serializers.FloatField()


class CopiesSerializer(serializers.Serializer[Any]):
    """How often a tier gets a copy, and what a fault that needs it undoes."""

    name = serializers.CharField()
    fault_share = serializers.FloatField(help_text="share of the faults that leave only this tier or a safer one")
    drain_s = serializers.FloatField()
    every_s = serializers.FloatField(help_text="start to start of two copies")
    undone_s = serializers.FloatField()


class FirstOrderSerializer(ModelPlanSerializer):
    """The first-order model; raw: its rate may be negative where it describes nothing, and it has no shares then."""

    shares = SharesSerializer(allow_null=True)
    steps = StepsSerializer(allow_null=True)


class PlanAnswerSerializer(ModelPlanSerializer):
    """The answer: the exact model at the top, first order as its explanation, and what follows from both."""

    reachable = serializers.BooleanField(
        help_text="whether the target is kept, by a number of steps where one is known"
    )
    why_no_steps = serializers.CharField(
        allow_null=True, help_text="where some period keeps it, but no number of steps"
    )
    first_order = FirstOrderSerializer()
    inputs = serializers.DictField(help_text="the request with `effective` values and `sources`")
    recommended_s = serializers.FloatField(allow_null=True, help_text="the period to use")
    recommended_ettr = serializers.FloatField()
    steps = StepsSerializer(allow_null=True)
    present = PresentSerializer(allow_null=True)
    spares = StandbysSerializer(allow_null=True)
    credible = CredibleSerializer(allow_null=True)
    levers = LeversSerializer()
    gains = GainSerializer(many=True)
    comparisons = ComparisonSerializer(many=True)
    lost_per_day_s = LostSerializer()
    laws = LawSerializer(many=True)
    tiers = CopiesSerializer(many=True)


class PlanResultSerializer(serializers.Serializer[Any]):
    """What came of a plan: measured beside planned, and whether chance alone explains the difference."""

    planned = serializers.FloatField()
    measured = serializers.FloatField(allow_null=True)
    sd = serializers.FloatField(allow_null=True)
    window_s = serializers.FloatField()
    verdict = serializers.CharField()
    told = serializers.CharField()
    frozen = serializers.BooleanField(help_text="whether nothing changes it any more")


class PlanSerializer(serializers.ModelSerializer[Plan]):
    """A plan that was applied: inputs with their sources, the answer, who, when, and what came of it."""

    job = NameField()
    result = serializers.SerializerMethodField()
    outputs = serializers.SerializerMethodField()

    class Meta:
        model = Plan
        fields = (
            "id", "job", "version", "automatic", "reason", "applied_by", "applied_at", "target", "planned_ettr",
            "period_s", "every_steps", "step_s", "from_step", "epoch", "began_at", "began_step", "ended_at",
            "ended_step", "result", "inputs", "outputs",
        )  # fmt: skip
        extra_kwargs = {"inputs": {"help_text": "name -> {value, source, told, by}"}}

    @extend_schema_field(PlanAnswerSerializer)
    def get_outputs(self, plan: Plan) -> dict[str, Any]:
        """Return the answer as it was kept."""
        outputs: dict[str, Any] = plan.outputs
        return outputs

    @extend_schema_field(PlanResultSerializer)
    def get_result(self, plan: Plan) -> dict[str, Any]:
        """Return what came of it; the resource has looked for all rows."""
        found: PlanResult = getattr(plan, RESULT)
        names = ("planned", "measured", "sd", "window_s", "verdict", "told", "frozen")
        return {name: getattr(found, name) for name in names}
