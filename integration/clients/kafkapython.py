"""kafka-python, which has a protocol implementation of its own, against the node at argv[1]."""

import sys

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

servers = sys.argv[1]

admin = KafkaAdminClient(bootstrap_servers=servers)
admin.create_topics([NewTopic("kafkapython", 2, 1)])

for idempotent in [False, True]:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", compression_type="gzip", linger_ms=5, enable_idempotence=idempotent)
    futures = [producer.send("kafkapython", key=b"k", value=b"value %d" % n, partition=1, headers=[("n", b"%d" % n)]) for n in range(500)]
    offsets = [f.get(60).offset for f in futures]
    first = 500 if idempotent else 0
    assert offsets == list(range(first, first + 500)), offsets[:10]
    producer.close()

partition = TopicPartition("kafkapython", 1)
consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, consumer_timeout_ms=30_000)
consumer.assign([partition])
consumer.seek_to_beginning(partition)
got = []
for message in consumer:
    got.append(message)
    if len(got) == 1000:
        break
assert len(got) == 1000, len(got)
for n, message in enumerate(got):
    assert (message.offset, message.value, message.headers) == (n, b"value %d" % (n % 500), [("n", b"%d" % (n % 500))]), message
assert consumer.end_offsets([partition])[partition] == 1000
assert consumer.beginning_offsets([partition])[partition] == 0
consumer.close()

admin.delete_topics(["kafkapython"])
admin.close()
print("kafka-python: all is well")
