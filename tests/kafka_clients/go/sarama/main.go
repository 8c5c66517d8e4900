// The driver of sarama.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
	"tidelog/matrix/report"
)

const wait = 30 * time.Second

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func nodes() []string { return strings.Split(report.Setting("BOOTSTRAP"), ",") }

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V4_1_0_0
	made.Producer.Return.Successes = true
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	return made
}

func idempotent() *sarama.Config {
	made := config()
	made.Producer.Idempotent, made.Producer.RequiredAcks, made.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	return made
}

func messages(topic string, values ...string) []*sarama.ProducerMessage {
	var made []*sarama.ProducerMessage
	for _, value := range values {
		made = append(made, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
	}
	return made
}

func write(addresses []string, config *sarama.Config, made []*sarama.ProducerMessage) error {
	producer, err := sarama.NewSyncProducer(addresses, config)
	if err != nil {
		return err
	}
	return errors.Join(producer.SendMessages(made), producer.Close())
}

func read(addresses []string, config *sarama.Config, topic string, count int) ([]*sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumer(addresses, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case message := <-partition.Messages():
			found = append(found, message)
		case <-time.After(wait):
			return nil, fmt.Errorf("%d records of %d", len(found), count)
		}
	}
	return found, nil
}

func values(found []*sarama.ConsumerMessage) []string {
	var texts []string
	for _, message := range found {
		texts = append(texts, string(message.Value))
	}
	return texts
}

func holds(addresses []string, config *sarama.Config, topic string, wanted []string) error {
	found, err := read(addresses, config, topic, len(wanted))
	if err != nil {
		return err
	}
	return report.Same(values(found), wanted)
}

func writesCodecs() error {
	topic := report.Topic("codecs")
	var wanted []string
	for _, codec := range report.Codecs {
		wanted = append(wanted, strings.Repeat(codec, 100))
		with := config()
		with.Producer.Compression = codecs[codec]
		if err := write(nodes(), with, messages(topic, wanted[len(wanted)-1])); err != nil {
			return err
		}
	}
	return holds(nodes(), config(), topic, wanted)
}

func writesAcks() error {
	topic := report.Topic("acks")
	acks := map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
	for name, acks := range acks {
		with := config()
		with.Producer.RequiredAcks = acks
		if err := write(nodes(), with, messages(topic, name)); err != nil {
			return err
		}
	}
	found, err := read(nodes(), config(), topic, 3)
	if err != nil {
		return err
	}
	names := values(found)
	sort.Strings(names)
	return report.Same(names, []string{"0", "1", "all"})
}

func isIdempotent() error {
	topic := report.Topic("idempotence")
	var wanted []string
	for number := range 100 {
		wanted = append(wanted, fmt.Sprint(number))
	}
	if err := write(nodes(), idempotent(), messages(topic, wanted...)); err != nil {
		return err
	}
	return holds(nodes(), config(), topic, wanted)
}

func transactional(topic string) (sarama.SyncProducer, error) {
	with := idempotent()
	with.Producer.Transaction.ID = topic
	return sarama.NewSyncProducer(nodes(), with)
}

// One aborts, one commits.
func hasTransactions() error {
	topic := report.Topic("transactions")
	producer, err := transactional(topic)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, value := range []string{"aborted", "committed"} {
		end := producer.CommitTxn
		if value == "aborted" {
			end = producer.AbortTxn
		}
		if err := errors.Join(producer.BeginTxn(), producer.SendMessages(messages(topic, value)), end()); err != nil {
			return err
		}
	}
	with := config()
	with.Consumer.IsolationLevel = sarama.ReadCommitted
	return holds(nodes(), with, topic, []string{"committed"})
}

// A member of a group, for one record.
type member struct {
	use   func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage) error
	ended error
	value string
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	select {
	case message := <-claim.Messages():
		m.value, m.ended = string(message.Value), m.use(session, message)
	case <-time.After(wait):
		m.ended = errors.New("no record")
	}
	return nil
}

func consumesOne(topic, wanted string, use func(sarama.ConsumerGroupSession, *sarama.ConsumerMessage) error) error {
	group, err := sarama.NewConsumerGroup(nodes(), topic, config())
	if err != nil {
		return err
	}
	one := &member{use: use}
	err = group.Consume(context.Background(), []string{topic}, one)
	return errors.Join(err, one.ended, group.Close(), report.Same(one.value, wanted))
}

// The offsets of a group are committed with the records.
func commitsOffsets() error {
	topic := report.Topic("offsets")
	if err := write(nodes(), config(), messages(topic, "in")); err != nil {
		return err
	}
	err := consumesOne(topic, "in", func(_ sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) error {
		producer, err := transactional(topic)
		if err != nil {
			return err
		}
		return errors.Join(producer.BeginTxn(), producer.SendMessages(messages(topic, "out")),
			producer.AddMessageToTxn(message, topic, nil), producer.CommitTxn(), producer.Close())
	})
	if err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdmin(nodes(), config())
	if err != nil {
		return err
	}
	defer admin.Close()
	return report.Eventually(func() error {
		found, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0}})
		if err != nil {
			return err
		}
		return report.Same(found.GetBlock(topic, 0).Offset, 1)
	})
}

// A second member goes on where the first one has committed.
func sharesGroup() error {
	topic := report.Topic("classic")
	if err := write(nodes(), config(), messages(topic, "a", "b")); err != nil {
		return err
	}
	for _, value := range []string{"a", "b"} {
		err := consumesOne(topic, value, func(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) error {
			session.MarkMessage(message, "")
			session.Commit()
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func hasHeaders() error {
	topic := report.Topic("headers")
	made := messages(topic, "v")
	made[0].Headers = []sarama.RecordHeader{
		{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("a"), Value: []byte{}}, {Key: []byte("b")},
	}
	if err := write(nodes(), config(), made); err != nil {
		return err
	}
	found, err := read(nodes(), config(), topic, 1)
	if err != nil {
		return err
	}
	var headers []sarama.RecordHeader
	for _, header := range found[0].Headers {
		headers = append(headers, *header)
	}
	return report.Same(headers, made[0].Headers)
}

// They are those of the producer, and offsets are found by them.
func hasTimestamps() error {
	topic, first := report.Topic("timestamps"), time.UnixMilli(1_700_000_000_000)
	made := messages(topic, "first", "second")
	made[0].Timestamp, made[1].Timestamp = first, first.Add(5*time.Second)
	if err := write(nodes(), config(), made); err != nil {
		return err
	}
	found, err := read(nodes(), config(), topic, 2)
	if err != nil {
		return err
	}
	if err := report.Same(found[1].Timestamp.UnixMilli(), first.UnixMilli()+5_000); err != nil {
		return err
	}
	anyone, err := sarama.NewClient(nodes(), config())
	if err != nil {
		return err
	}
	defer anyone.Close()
	offset, err := anyone.GetOffset(topic, 0, first.UnixMilli()+1)
	return errors.Join(err, report.Same(offset, 1))
}

// A topic is created, described and deleted.
func administers() error {
	topic, retention := report.Topic("made"), "60000"
	admin, err := sarama.NewClusterAdmin(nodes(), config())
	if err != nil {
		return err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return err
	}
	err = report.Eventually(func() error {
		described, err := admin.DescribeTopics([]string{topic})
		if err != nil {
			return err
		}
		return report.Same(len(described[0].Partitions), 2)
	})
	if err != nil {
		return err
	}
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	err = report.Eventually(func() error {
		entries, err := admin.DescribeConfig(resource)
		if err != nil || len(entries) != 1 {
			return errors.Join(err, report.Same(len(entries), 1))
		}
		return report.Same(entries[0].Value, retention)
	})
	if err != nil {
		return err
	}
	return admin.DeleteTopic(topic)
}

// The SCRAM conversation, which sarama leaves to its user.
type conversation struct{ *scram.ClientConversation }

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := scram.SHA512.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}

type token struct{}

func (token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: report.Setting("TOKEN")}, nil
}

func logsIn(mechanism sarama.SASLMechanism, topic string) error {
	secured, err := report.TLS()
	if err != nil {
		return err
	}
	with := config()
	with.Net.SASL.Enable, with.Net.SASL.Mechanism = true, mechanism
	with.Net.SASL.User, with.Net.SASL.Password = report.Setting("USERNAME"), report.Setting("PASSWORD")
	with.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{} }
	with.Net.SASL.TokenProvider = token{}
	return keepsSecret("SECURE_BOOTSTRAP", with, secured, topic)
}

func hasCertificate() error {
	mutual, err := report.MutualTLS()
	if err != nil {
		return err
	}
	return keepsSecret("MUTUAL_BOOTSTRAP", config(), mutual, report.Topic("certificate"))
}

func keepsSecret(bootstrap string, with *sarama.Config, secured *tls.Config, topic string) error {
	with.Net.TLS.Enable, with.Net.TLS.Config = true, secured
	node := []string{report.Setting(bootstrap)}
	if err := write(node, with, messages(topic, "secret")); err != nil {
		return err
	}
	return holds(node, with, topic, []string{"secret"})
}

func main() {
	report.Run([]report.Feature{
		{"codecs", writesCodecs},
		{"acks", writesAcks},
		{"idempotence", isIdempotent},
		{"transactions", hasTransactions},
		{"offsets", commitsOffsets},
		{"classic", sharesGroup},
		{"consumer", func() error { return fmt.Errorf("sarama does not have KIP-848: %w", report.ErrUnsupported) }},
		{"headers", hasHeaders},
		{"timestamps", hasTimestamps},
		{"admin", administers},
		{"scram", func() error { return logsIn(sarama.SASLTypeSCRAMSHA512, report.Topic("scram")) }},
		{"plain", func() error { return logsIn(sarama.SASLTypePlaintext, report.Topic("plain")) }},
		{"oauthbearer", func() error { return logsIn(sarama.SASLTypeOAuth, report.Topic("oauthbearer")) }},
		{"certificate", hasCertificate},
	})
}
