// kafkajs against the node at argv[2]. It has no consumer without a group, so what it wrote is read by the test that runs this.
const { Kafka, CompressionTypes, logLevel } = require(process.env.KAFKAJS || 'kafkajs')
const assert = require('node:assert')

async function main() {
  const kafka = new Kafka({ clientId: 'varve-test', brokers: [process.argv[2]], logLevel: logLevel.ERROR, retry: { retries: 3 } })
  const admin = kafka.admin()
  await admin.connect()
  assert.equal(await admin.createTopics({ waitForLeaders: true, topics: [{ topic: 'kafkajs', numPartitions: 2, replicationFactor: 1 }] }), true)
  for (const options of [{}, { idempotent: true, maxInFlightRequests: 1 }]) {
    const producer = kafka.producer(options)
    await producer.connect()
    for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
      const messages = Array.from({ length: 100 }, (_, n) => ({ partition: 1, key: 'k', value: `value ${n}`, headers: { n: String(n) } }))
      const [answer] = await producer.send({ topic: 'kafkajs', acks: -1, compression, messages })
      assert.equal(answer.errorCode, 0)
    }
    await producer.disconnect()
  }
  const offsets = await admin.fetchTopicOffsets('kafkajs')
  assert.deepEqual(offsets.map((o) => [o.partition, o.low, o.high]).sort(), [[0, '0', '0'], [1, '0', '400']])
  const metadata = await admin.fetchTopicMetadata({ topics: ['kafkajs'] })
  assert.equal(metadata.topics[0].partitions.length, 2)
  const cluster = await admin.describeCluster()
  assert.equal(cluster.brokers.length, 1)
  await admin.disconnect()
  console.log('kafkajs: all is well')
}

main().catch((e) => {
  console.error(e)
  process.exit(1)
})
