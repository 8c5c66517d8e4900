// The driver of franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"tidelog/matrix/report"
)

const wait = 30 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func client(options ...kgo.Opt) (*kgo.Client, error) {
	nodes := kgo.SeedBrokers(strings.Split(report.Setting("BOOTSTRAP"), ",")...)
	return kgo.NewClient(append([]kgo.Opt{nodes}, options...)...)
}

func write(records []*kgo.Record, options ...kgo.Opt) error {
	producer, err := client(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func records(topic string, values ...string) []*kgo.Record {
	var made []*kgo.Record
	for _, value := range values {
		made = append(made, &kgo.Record{Topic: topic, Value: []byte(value)})
	}
	return made
}

func received(consumer *kgo.Client, count int) ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var found []*kgo.Record
	for len(found) < count {
		fetches := consumer.PollRecords(ctx, count-len(found))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

func read(topic string, count int, options ...kgo.Opt) ([]*kgo.Record, error) {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	consumer, err := client(append(options, kgo.ConsumePartitions(start))...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	return received(consumer, count)
}

func values(found []*kgo.Record) []string {
	var texts []string
	for _, record := range found {
		texts = append(texts, string(record.Value))
	}
	return texts
}

func holds(topic string, wanted []string, options ...kgo.Opt) error {
	found, err := read(topic, len(wanted), options...)
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
		err := write(records(topic, wanted[len(wanted)-1]), kgo.ProducerBatchCompression(codecs[codec]))
		if err != nil {
			return err
		}
	}
	return holds(topic, wanted)
}

func writesAcks() error {
	topic := report.Topic("acks")
	for name, acks := range map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()} {
		if err := write(records(topic, name), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()); err != nil {
			return err
		}
	}
	found, err := read(topic, 3)
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
	if err := write(records(topic, wanted...)); err != nil {
		return err
	}
	return holds(topic, wanted)
}

// One aborts, one commits.
func hasTransactions() error {
	topic := report.Topic("transactions")
	producer, err := client(kgo.TransactionalID(topic))
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, value := range []string{"aborted", "committed"} {
		err := errors.Join(
			producer.BeginTransaction(),
			producer.ProduceSync(ctx, records(topic, value)...).FirstErr(),
			producer.EndTransaction(ctx, kgo.TransactionEndTry(value == "committed")),
		)
		if err != nil {
			return err
		}
	}
	return holds(topic, []string{"committed"}, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

// The offsets of a group are committed with the records.
func commitsOffsets() error {
	topic := report.Topic("offsets")
	if err := write(records(topic, "in")); err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(append(member(topic),
		kgo.SeedBrokers(strings.Split(report.Setting("BOOTSTRAP"), ",")...), kgo.TransactionalID(topic))...)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := session.PollRecords(ctx, 1).Err(); err != nil {
		return err
	}
	err = errors.Join(session.Begin(), session.ProduceSync(ctx, records(topic, "out")...).FirstErr())
	if err != nil {
		return err
	}
	committed, err := session.End(ctx, kgo.TryCommit)
	if err != nil || !committed {
		return errors.Join(err, report.Same(committed, true))
	}
	// A transaction has ended before its markers are written, and until then a partition without an older offset is not
	// among those of a group, even if only stable offsets are asked for.
	for {
		found, err := kadm.NewClient(session.Client()).FetchOffsets(kadm.RequireStable(ctx), topic)
		if err != nil {
			return err
		}
		if offset, ok := found.Lookup(topic, 0); ok {
			return report.Same(offset.At, 1)
		}
	}
}

func member(topic string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
}

// A second member goes on where the first one has committed.
func sharesGroup(topic string, options ...kgo.Opt) error {
	if err := write(records(topic, "a", "b")); err != nil {
		return err
	}
	for _, value := range []string{"a", "b"} {
		consumer, err := client(append(member(topic), options...)...)
		if err != nil {
			return err
		}
		found, err := received(consumer, 1)
		if err == nil {
			err = errors.Join(report.Same(values(found), []string{value}),
				consumer.CommitRecords(context.Background(), found...))
		}
		consumer.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func hasHeaders() error {
	topic := report.Topic("headers")
	record := records(topic, "v")[0]
	record.Headers = []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte{}}, {Key: "b"}}
	if err := write([]*kgo.Record{record}); err != nil {
		return err
	}
	found, err := read(topic, 1)
	if err != nil {
		return err
	}
	return report.Same(found[0].Headers, record.Headers)
}

// They are those of the producer, and offsets are found by them.
func hasTimestamps() error {
	topic := report.Topic("timestamps")
	first := time.UnixMilli(1_700_000_000_000)
	made := records(topic, "first", "second")
	made[0].Timestamp, made[1].Timestamp = first, first.Add(5*time.Second)
	if err := write(made); err != nil {
		return err
	}
	found, err := read(topic, 2)
	if err != nil {
		return err
	}
	if err := report.Same(found[1].Timestamp.UnixMilli(), first.UnixMilli()+5_000); err != nil {
		return err
	}
	anyone, err := client()
	if err != nil {
		return err
	}
	defer anyone.Close()
	listed, err := kadm.NewClient(anyone).ListOffsetsAfterMilli(context.Background(), first.UnixMilli()+1, topic)
	if err != nil {
		return err
	}
	offset, _ := listed.Lookup(topic, 0)
	return report.Same(offset.Offset, 1)
}

// A topic is created, described and deleted.
func administers() error {
	topic, retention := report.Topic("made"), "60000"
	anyone, err := client()
	if err != nil {
		return err
	}
	defer anyone.Close()
	admin, ctx := kadm.NewClient(anyone), context.Background()
	if _, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, topic); err != nil {
		return err
	}
	err = report.Eventually(func() error {
		topics, err := admin.ListTopics(ctx, topic)
		return errors.Join(err, report.Same(len(topics[topic].Partitions), 2))
	})
	if err != nil {
		return err
	}
	err = report.Eventually(func() error {
		described, err := admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		for _, config := range described[0].Configs {
			if config.Key == "retention.ms" {
				return report.Same(config.MaybeValue(), retention)
			}
		}
		return errors.Join(described[0].Err, errors.New("retention.ms is not described"))
	})
	if err != nil {
		return err
	}
	_, err = admin.DeleteTopic(ctx, topic)
	return err
}

func logsIn(mechanism sasl.Mechanism, topic string) error {
	secured, err := report.TLS()
	if err != nil {
		return err
	}
	return keepsSecret(topic, kgo.SeedBrokers(report.Setting("SECURE_BOOTSTRAP")), kgo.SASL(mechanism),
		kgo.DialTLSConfig(secured))
}

func hasCertificate() error {
	mutual, err := report.MutualTLS()
	if err != nil {
		return err
	}
	return keepsSecret(report.Topic("certificate"), kgo.SeedBrokers(report.Setting("MUTUAL_BOOTSTRAP")),
		kgo.DialTLSConfig(mutual))
}

func keepsSecret(topic string, options ...kgo.Opt) error {
	if err := write(records(topic, "secret"), options...); err != nil {
		return err
	}
	return holds(topic, []string{"secret"}, options...)
}

func main() {
	user, password := report.Setting("USERNAME"), report.Setting("PASSWORD")
	report.Run([]report.Feature{
		{"codecs", writesCodecs},
		{"acks", writesAcks},
		{"idempotence", isIdempotent},
		{"transactions", hasTransactions},
		{"offsets", commitsOffsets},
		{"classic", func() error { return sharesGroup(report.Topic("classic")) }},
		{"consumer", func() error {
			return sharesGroup(report.Topic("consumer"), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
		}},
		{"headers", hasHeaders},
		{"timestamps", hasTimestamps},
		{"admin", administers},
		{"scram", func() error {
			return logsIn(scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), report.Topic("scram"))
		}},
		{"plain", func() error {
			return logsIn(plain.Auth{User: user, Pass: password}.AsMechanism(), report.Topic("plain"))
		}},
		{"oauthbearer", func() error {
			return logsIn(oauth.Auth{Token: report.Setting("TOKEN")}.AsMechanism(), report.Topic("oauthbearer"))
		}},
		{"certificate", hasCertificate},
	})
}
