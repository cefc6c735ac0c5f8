package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func createOf(topics ...string) *kmsg.CreateTopicsRequest {
	k := kmsg.NewPtrCreateTopicsRequest()
	for _, topic := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, 1
		k.Topics = append(k.Topics, t)
	}
	return k
}

func (w *wire) create(version int16, k *kmsg.CreateTopicsRequest) string {
	w.t.Helper()
	return errorName(ask[*kmsg.CreateTopicsResponse](w, version, k).Topics[0].ErrorCode)
}

func TestTopicNames(t *testing.T) { // case 25
	w := oneNode(t).wire(t)
	require.Empty(t, w.create(7, createOf("a.b")))
	require.Empty(t, w.create(7, createOf(strings.Repeat("x", 249))))
	for _, name := range []string{"", ".", "..", strings.Repeat("x", 250), "a b", "a/b", "ä", "a_b"} {
		require.Equal(t, "INVALID_TOPIC_EXCEPTION", w.create(7, createOf(name)), "%.20q", name)
	}
	require.Equal(t, "TOPIC_ALREADY_EXISTS", w.create(7, createOf("a.b")))
	validate := createOf("a.b")
	validate.ValidateOnly = true
	require.Equal(t, "TOPIC_ALREADY_EXISTS", w.create(7, validate))
	validate = createOf("new")
	validate.ValidateOnly = true
	require.Empty(t, w.create(7, validate))
	require.Empty(t, w.create(7, createOf("new")), "validating made nothing")
	twice := ask[*kmsg.CreateTopicsResponse](w, 7, createOf("c", "c", "d"))
	require.Len(t, twice.Topics, 2)
	require.Equal(t, "INVALID_REQUEST", errorName(twice.Topics[0].ErrorCode))
	require.Zero(t, twice.Topics[1].ErrorCode)
}

func TestCreateTopicsChecksWhatIsAsked(t *testing.T) {
	w := oneNode(t).wire(t)
	change := func(f func(*kmsg.CreateTopicsRequestTopic)) string {
		k := createOf("t")
		f(&k.Topics[0])
		k.ValidateOnly = true
		return w.create(7, k)
	}
	config := func(name string, value *string) string {
		return change(func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: name, Value: value}}
		})
	}
	require.Equal(t, "INVALID_PARTITIONS", change(func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 0 }))
	require.Equal(t, "INVALID_PARTITIONS", change(func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 1 << 30 }))
	require.Equal(t, "INVALID_REPLICATION_FACTOR", change(func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 0 }))
	require.Empty(t, change(func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions, t.ReplicationFactor = -1, -1 }))
	require.Empty(t, change(func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 3 }))
	require.Equal(t, "INVALID_REPLICA_ASSIGNMENT", change(func(t *kmsg.CreateTopicsRequestTopic) {
		t.NumPartitions, t.ReplicationFactor = -1, -1
		t.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1}}}
	}))
	require.Equal(t, "INVALID_CONFIG", config("retention.ms", str("soon")))
	require.Equal(t, "INVALID_CONFIG", config("retention.ms", nil))
	require.Equal(t, "INVALID_CONFIG", config("no.such.config", str("1")))
	require.Equal(t, "INVALID_CONFIG", config("cleanup.policy", str("compact")))
	require.Empty(t, config("retention.ms", str("60000")))
}

func TestCreateAndDeleteTopicsOfEveryVersion(t *testing.T) {
	w := oneNode(t).wire(t)
	for version := range int16(8) {
		require.Empty(t, w.create(version, createOf("t")), version)
		k := kmsg.NewPtrDeleteTopicsRequest()
		k.TopicNames = []string{"t"}
		k.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: str("t")}}
		deleted := ask[*kmsg.DeleteTopicsResponse](w, min(version, 6), k)
		require.Zero(t, deleted.Topics[0].ErrorCode)
		deleted = ask[*kmsg.DeleteTopicsResponse](w, min(version, 6), k)
		require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", errorName(deleted.Topics[0].ErrorCode))
	}
}

func TestTopicIdsOfARecreatedTopic(t *testing.T) { // case 18
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	w := n.wire(t)
	require.Zero(t, w.produce(9, produceOf("t", 0, one("first"))).ErrorCode)
	old := w.topic(t, "t").TopicID
	byID := kmsg.NewPtrDeleteTopicsRequest()
	byID.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: old}}
	require.Zero(t, ask[*kmsg.DeleteTopicsResponse](w, 6, byID).Topics[0].ErrorCode)
	require.Equal(t, "UNKNOWN_TOPIC_ID", errorName(ask[*kmsg.DeleteTopicsResponse](w, 6, byID).Topics[0].ErrorCode))
	n.create(t, "t", 1, nil)
	fresh := w.topic(t, "t").TopicID
	require.NotEqual(t, old, fresh)

	k := fetchOf("", 0, 0)
	k.Topics[0].TopicID = old
	require.Equal(t, "UNKNOWN_TOPIC_ID", errorName(w.fetch(13, k).ErrorCode))
	produce := produceOf("", 0, one("second"))
	produce.Topics[0].TopicID = fresh
	require.Zero(t, w.produce(13, produce).BaseOffset)
	k.Topics[0].TopicID = fresh
	got := w.fetch(13, k)
	require.Zero(t, got.ErrorCode)
	require.Contains(t, string(got.RecordBatches), "second")
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{TopicID: old}, {TopicID: fresh}}
	topics := ask[*kmsg.MetadataResponse](w, 12, metadata).Topics
	require.Equal(t, "UNKNOWN_TOPIC_ID", errorName(topics[0].ErrorCode))
	require.Equal(t, "t", *topics[1].Topic)
}

// topic is the metadata of one topic.
func (w *wire) topic(t *testing.T, name string) kmsg.MetadataResponseTopic {
	t.Helper()
	k := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	k.Topics = append(k.Topics, topic)
	return ask[*kmsg.MetadataResponse](w, 12, k).Topics[0]
}

func TestAutoCreation(t *testing.T) { // case 25
	ask1 := func(w *wire, version int16, allow bool) string {
		k := kmsg.NewPtrMetadataRequest()
		k.Topics, k.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{{Topic: str("auto")}}, allow
		return errorName(ask[*kmsg.MetadataResponse](w, version, k).Topics[0].ErrorCode)
	}
	off := oneNode(t, func(o *Options) { o.AutoCreateTopics = false }).wire(t)
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", ask1(off, 12, true))
	on := oneNode(t, func(o *Options) { o.DefaultPartitions = 3 })
	w := on.wire(t)
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", ask1(w, 12, false))
	require.Contains(t, []string{"", "LEADER_NOT_AVAILABLE"}, ask1(w, 1, false), "old versions always allow it")
	require.Eventually(t, func() bool { return ask1(w, 12, false) == "" }, patience, 5*time.Millisecond)
	require.Len(t, w.topic(t, "auto").Partitions, 3)
	require.NoError(t, on.client(t).ProduceSync(t.Context(), &kgo.Record{Topic: "made-by-producing", Value: []byte("v")}).FirstErr())
	k := kmsg.NewPtrMetadataRequest()
	k.Topics, k.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{{Topic: str("a b")}}, true
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", errorName(ask[*kmsg.MetadataResponse](w, 12, k).Topics[0].ErrorCode))
}

func TestMetadataOfEverything(t *testing.T) {
	n := oneNode(t)
	n.create(t, "a", 2, nil)
	n.create(t, "b", 1, nil)
	w := n.wire(t)
	for version := range int16(14) {
		k := kmsg.NewPtrMetadataRequest()
		response := ask[*kmsg.MetadataResponse](w, version, k)
		require.Len(t, response.Brokers, 1)
		require.Equal(t, int32(1), response.Brokers[0].NodeID)
		require.Equal(t, n.addr, response.Brokers[0].Host+":"+itoa(response.Brokers[0].Port))
		require.Len(t, response.Topics, 2)
		p := response.Topics[0].Partitions[1]
		require.Equal(t, [3]int32{1, 1, 1}, [3]int32{p.Leader, p.Replicas[0], p.ISR[0]})
		require.Equal(t, version >= 7, p.LeaderEpoch >= 1, "%d", p.LeaderEpoch)
	}
	none := kmsg.NewPtrMetadataRequest()
	none.Topics = []kmsg.MetadataRequestTopic{}
	require.Empty(t, ask[*kmsg.MetadataResponse](w, 12, none).Topics)
	cluster, err := n.admin(t).BrokerMetadata(t.Context())
	require.NoError(t, err)
	require.Equal(t, "site", cluster.Cluster)
	require.Equal(t, int32(1), cluster.Controller)
}

func TestDescribeCluster(t *testing.T) {
	n := oneNode(t)
	response := ask[*kmsg.DescribeClusterResponse](n.wire(t), 1, versionedEndpoint(1))
	require.Equal(t, "site", response.ClusterID)
	require.Len(t, response.Brokers, 1)
	response = ask[*kmsg.DescribeClusterResponse](n.wire(t), 1, versionedEndpoint(2))
	require.Equal(t, "UNSUPPORTED_ENDPOINT_TYPE", errorName(response.ErrorCode))
}

func versionedEndpoint(kind int8) *kmsg.DescribeClusterRequest {
	k := kmsg.NewPtrDescribeClusterRequest()
	k.EndpointType = kind
	return k
}

func TestCreatePartitions(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 2, nil)
	admin := n.admin(t)
	set := func(count int, topic string) error {
		responses, err := admin.UpdatePartitions(t.Context(), count, topic)
		require.NoError(t, err)
		return responses[topic].Err
	}
	require.NoError(t, set(5, "t"))
	require.ErrorIs(t, set(5, "t"), kerr.InvalidPartitions)
	require.ErrorIs(t, set(1, "t"), kerr.InvalidPartitions)
	require.ErrorIs(t, set(2, "missing"), kerr.UnknownTopicOrPartition)
	w := n.wire(t)
	require.Len(t, w.topic(t, "t").Partitions, 5)
	require.Zero(t, w.produce(9, produceOf("t", 4, one("x"))).ErrorCode)
}

func TestConfigs(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 1, map[string]*string{"retention.ms": str("60000")})
	admin := n.admin(t)
	show := func() map[string]kadm.Config {
		described, err := admin.DescribeTopicConfigs(t.Context(), "t")
		require.NoError(t, err)
		require.NoError(t, described[0].Err)
		configs := map[string]kadm.Config{}
		for _, c := range described[0].Configs {
			configs[c.Key] = c
		}
		return configs
	}
	require.Equal(t, "60000", *show()["retention.ms"].Value)
	require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, show()["retention.ms"].Source)
	require.Equal(t, kmsg.ConfigSourceDefaultConfig, show()["max.message.bytes"].Source)
	require.NotContains(t, show(), "http.content.type")

	alter := func(changes ...kadm.AlterConfig) error {
		responses, err := admin.AlterTopicConfigs(t.Context(), changes, "t")
		require.NoError(t, err)
		return responses[0].Err
	}
	require.NoError(t, alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: str("2000")}))
	require.Equal(t, "2000", *show()["max.message.bytes"].Value)
	require.Equal(t, "60000", *show()["retention.ms"].Value, "others are as they were")
	require.NoError(t, alter(kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"}))
	require.Equal(t, "604800000", *show()["retention.ms"].Value)
	require.NoError(t, alter(kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: str("delete")}))
	require.ErrorIs(t, alter(kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: str("compact")}), kerr.InvalidConfig)
	require.ErrorIs(t, alter(kadm.AlterConfig{Op: kadm.AppendConfig, Name: "retention.ms", Value: str("1")}), kerr.InvalidConfig)
	require.ErrorIs(t, alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "no.such", Value: str("1")}), kerr.InvalidConfig)

	responses, err := admin.AlterTopicConfigsState(t.Context(), []kadm.AlterConfig{{Name: "retention.bytes", Value: str("5000")}}, "t", "missing")
	require.NoError(t, err)
	for _, r := range responses {
		if r.Name == "t" {
			require.NoError(t, r.Err)
		} else {
			require.ErrorIs(t, r.Err, kerr.UnknownTopicOrPartition, "for that resource only")
		}
	}
	require.Equal(t, "5000", *show()["retention.bytes"].Value)
	require.Equal(t, "1048588", *show()["max.message.bytes"].Value, "what was not named is the default again")
}

func TestBrokerConfigs(t *testing.T) {
	n := oneNode(t, func(o *Options) { o.DefaultPartitions = 7 })
	admin := n.admin(t)
	described, err := admin.DescribeBrokerConfigs(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, described[0].Err)
	values := map[string]string{}
	for _, c := range described[0].Configs {
		values[c.Key] = *c.Value
	}
	require.Equal(t, "7", values["num.partitions"])
	require.Equal(t, "true", values["auto.create.topics.enable"])
	responses, err := admin.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "num.partitions", Value: str("2")}}, 1)
	require.NoError(t, err)
	require.ErrorIs(t, responses[0].Err, kerr.InvalidRequest)
}
