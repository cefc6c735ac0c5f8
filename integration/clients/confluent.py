"""confluent-kafka (librdkafka) against the node at argv[1]. Any failed expectation ends it with a traceback."""

import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

servers = sys.argv[1]
admin = AdminClient({"bootstrap.servers": servers})


def create(name, partitions, config=None):
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=config or {})]).values():
        future.result(30)


def produce(topic, count, **config):
    """Produces count records to partition 0 and checks the offsets that are acknowledged."""
    offsets, errors = [], []

    def done(error, message):
        (errors.append(error) if error else offsets.append(message.offset()))

    producer = Producer({"bootstrap.servers": servers, **config})
    for n in range(count):
        producer.produce(topic, key=f"k{n}", value=f"value {n}" * 20, headers={"n": str(n)}, timestamp=1_700_000_000_000 + n, partition=0, on_delivery=done)
        producer.poll(0)
    assert producer.flush(60) == 0, "records are not acknowledged"
    assert not errors, errors
    return offsets


def read(topic, partition, first, count):
    """Reads without a group: partitions are assigned by hand."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, first)])
    messages, deadline = [], time.time() + 60
    while len(messages) < count:
        assert time.time() < deadline, f"{len(messages)} of {count} records came"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            continue
        messages.append(message)
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
    at = consumer.offsets_for_times([TopicPartition(topic, partition, 1_700_000_000_000 + 7)], 30)[0].offset
    consumer.close()
    return messages, low, high, at


for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
    topic = f"confluent-{codec}"
    create(topic, 2)
    offsets = produce(topic, 1000, **{"compression.type": codec, "enable.idempotence": codec != "none", "linger.ms": 5})
    assert offsets == list(range(1000)), offsets[:10]
    messages, low, high, at = read(topic, 0, 0, 1000)
    assert (low, high, at) == (0, 1000, 7), (low, high, at)
    for n, m in enumerate(messages):
        assert (m.offset(), m.key(), m.value(), m.headers()) == (n, f"k{n}".encode(), (f"value {n}" * 20).encode(), [("n", str(n).encode())]), m
        assert m.timestamp()[1] == 1_700_000_000_000 + n, m.timestamp()
    messages, *_ = read(topic, 0, 990, 10)
    assert [m.offset() for m in messages] == list(range(990, 1000))

# Groups are refused at once, in words; with partitions assigned by hand nothing is an error, above.
consumer = Consumer({"bootstrap.servers": servers, "group.id": "group"})
consumer.subscribe(["confluent-none"])
message = consumer.poll(30)
assert message is not None and message.error().code() == KafkaError.UNSUPPORTED_VERSION, message and message.error()
consumer.close()

create("confluent-admin", 1, {"retention.ms": "3600000"})
resource = ConfigResource(ConfigResource.Type.TOPIC, "confluent-admin")
config = admin.describe_configs([resource])[resource].result(30)
assert config["retention.ms"].value == "3600000", config["retention.ms"].value
for future in admin.create_partitions([NewPartitions("confluent-admin", 3)]).values():
    future.result(30)
described = admin.list_topics("confluent-admin", timeout=30).topics["confluent-admin"]
assert len(described.partitions) == 3, described.partitions
for future in admin.delete_topics(["confluent-admin"]).values():
    future.result(30)
assert "confluent-admin" not in admin.list_topics(timeout=30).topics

# A topic is made by naming it, and JSON of HTTP streams is read like any other.
assert produce("confluent-auto", 1) == [0]
messages, *_ = read("made/over/http", 0, 0, 2)
assert [m.value() for m in messages] == [b'{"n":1}', b'{"n":2}'], [m.value() for m in messages]
print("confluent-kafka: all is well")
