"""The live channel: who may listen, what is heard, with and without the broker."""

import asyncio
import time
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from django.contrib.auth.models import AnonymousUser

from reliability import live, models
from reliability.consumers import QUEUE_LENGTH, Hub, LiveConsumer, websocket_application
from reliability.selectors import changes
from tests.web import rows
from tests.web.sockets import Socket

pytestmark = pytest.mark.django_db(transaction=True)
IN_MEMORY = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
AWAY = {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]}}}


@pytest.fixture(autouse=True)
def layer(settings: Any) -> None:
    """A channel layer inside this process."""
    settings.CHANNEL_LAYERS = IN_MEMORY


async def listener(user: Any) -> Socket:
    talk = Socket(LiveConsumer.as_asgi(), user)
    assert await talk.connect()
    return talk


async def topics_until(talk: Socket, wanted: str, limit_s: float = 5.0) -> list[str]:
    async with asyncio.timeout(limit_s):
        while True:
            message = await talk.message(limit_s)
            if wanted in message["topics"]:
                return list(message["topics"])


async def test_a_person_who_is_not_signed_in_is_told_so_and_closed_off() -> None:
    talk = await listener(AnonymousUser())
    assert await talk.close_code() == 4401


async def test_another_origin_is_refused(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["stepkeeper.example"]
    assert not await Socket(websocket_application, headers=[(b"origin", b"https://evil.example")]).connect()


async def test_a_hint_of_a_service_reaches_the_browser() -> None:
    talk = await listener(await sync_to_async(rows.person)("ops"))
    first = await talk.message()
    assert first["topics"] == []
    assert abs(first["now"] - time.time()) < 5
    await asyncio.sleep(0)
    layer = get_channel_layer()
    async with asyncio.timeout(5):
        while not layer.groups.get(live.GROUP):
            await asyncio.sleep(0.01)
    await layer.group_send(live.GROUP, {"type": live.MESSAGE_TYPE, "topics": ["job:7"]})
    assert await topics_until(talk, "job:7") == ["job:7"]
    await talk.disconnect()


async def test_a_change_in_the_database_is_seen_without_any_hint(settings: Any) -> None:
    settings.CHANNEL_LAYERS = AWAY
    node = await sync_to_async(rows.node)("n1")
    talk = await listener(await sync_to_async(rows.person)("ops"))
    await talk.message()
    await asyncio.sleep(0.3)
    await models.Node.objects.filter(pk=node.pk).aupdate(health="unreachable")
    assert f"node:{node.pk}" in await topics_until(talk, changes.OVERVIEW)
    await talk.disconnect()


async def test_heartbeats_come_with_rising_numbers_of_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reliability.consumers.HEARTBEAT_S", 0.05)
    talk = await listener(await sync_to_async(rows.person)("ops"))
    heard = [await talk.message() for _ in range(4)]
    numbers = [message["seq"] for message in heard]
    assert numbers == list(range(numbers[0], numbers[0] + 4))
    assert len({message["server"] for message in heard}) == 1
    await talk.disconnect()


async def test_a_browser_that_does_not_keep_up_sees_a_gap_and_not_an_old_state() -> None:
    hub = Hub()
    inbox = hub.join()
    for number in range(300):
        hub.broadcast([f"job:{number}"])
    assert inbox.qsize() == QUEUE_LENGTH
    kept = [inbox.get_nowait() for _ in range(QUEUE_LENGTH)]
    assert kept[-1]["topics"] == ["job:299"]
    assert kept[0]["seq"] > 1
    await hub.leave(inbox)


async def test_the_hub_rests_when_the_last_browser_has_left() -> None:
    hub = Hub()
    first, second = hub.join(), hub.join()
    await hub.leave(first)
    assert hub._tasks
    await hub.leave(second)
    assert not hub._tasks


def test_hinting_never_raises_nor_waits_when_the_broker_is_away(settings: Any) -> None:
    settings.CHANNEL_LAYERS = AWAY
    began = time.monotonic()
    for number in range(2000):
        live.changed("overview", f"job:{number}")
    assert time.monotonic() - began < 5


def test_each_kind_of_change_moves_its_topic_and_the_overview() -> None:
    cluster = rows.full_cluster()
    job, node, failover = cluster["training"], cluster["node"], cluster["request"]

    def moved(change: Any) -> list[str]:
        before = changes.signature()
        change()
        return changes.changed_topics(before, changes.signature())

    assert moved(lambda: None) == []
    cases = [
        (lambda: models.Rank.objects.filter(job=job, rank=0).update(step=1241), f"job:{job.pk}"),
        (lambda: rows.snapshot(job, 1240, "memory"), f"job:{job.pk}"),
        (lambda: models.Node.objects.filter(pk=node.pk).update(health_reason="other"), f"node:{node.pk}"),
        (lambda: rows.validation(node, "sdc"), f"node:{node.pk}"),
        (lambda: models.Failover.objects.filter(pk=failover.pk).update(state="fencing"), f"failover:{failover.pk}"),
        (
            lambda: models.Incident.objects.filter(pk=cluster["incident"].pk).update(summary="x"),
            f"incident:{cluster['incident'].pk}",
        ),
    ]
    for change, topic in cases:
        topics = moved(change)
        assert topic in topics
        assert changes.OVERVIEW in topics


async def test_a_websocket_address_that_there_is_not_is_closed_and_no_error() -> None:
    talk = ApplicationCommunicator(
        websocket_application,
        {
            "type": "websocket",
            "path": "/ws/zz/",
            "headers": [(b"origin", b"http://localhost"), (b"host", b"localhost")],
            "query_string": b"",
        },
    )
    await talk.send_input({"type": "websocket.connect"})
    assert (await talk.receive_output())["type"] == "websocket.close"
    await talk.wait()
