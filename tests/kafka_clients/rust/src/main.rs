// The driver of rdkafka: librdkafka from Rust.

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext, OAuthToken};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::env::var;
use std::error::Error;
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;
type Options<'a> = &'a [(&'a str, &'a str)];

const WAIT: Duration = Duration::from_secs(30);
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

fn setting(name: &str) -> String {
    var(format!("MATRIX_{name}")).expect(name)
}

fn topic(feature: &str) -> String {
    format!("{}-{feature}", setting("PREFIX"))
}

fn same<T: std::fmt::Debug + PartialEq>(found: T, wanted: T) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{found:?} instead of {wanted:?}").into())
}

fn config(more: Options) -> ClientConfig {
    let mut made = ClientConfig::new();
    made.set("bootstrap.servers", setting("BOOTSTRAP"));
    for (name, value) in more {
        made.set(*name, *value);
    }
    made
}

// Has a token, where the mechanism is OAUTHBEARER.
struct Caller;

impl ClientContext for Caller {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Outcome<OAuthToken> {
        Ok(OAuthToken {
            token: setting("TOKEN"),
            principal_name: setting("USERNAME"),
            lifetime_ms: 4_000_000_000_000,
        })
    }
}

impl ConsumerContext for Caller {}

impl ProducerContext for Caller {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, _: Self::DeliveryOpaque) {}
}

fn write(topic: &str, values: &[String], more: Options) -> Outcome {
    let producer: BaseProducer<Caller> = config(more).create_with_context(Caller)?;
    for value in values {
        producer
            .send(BaseRecord::<(), str>::to(topic).payload(value))
            .map_err(|(error, _)| error)?;
    }
    Ok(producer.flush(WAIT)?)
}

fn received<C: ConsumerContext>(consumer: &BaseConsumer<C>, count: usize) -> Outcome<Vec<OwnedMessage>> {
    let (mut found, deadline) = (Vec::new(), Instant::now() + WAIT);
    while found.len() < count {
        // It also returns without a record after each change of the assignment.
        if let Some(message) = consumer.poll(Duration::from_secs(1)) {
            found.push(message?.detach());
        } else if Instant::now() > deadline {
            return Err(format!("{} records of {count}", found.len()).into());
        }
    }
    Ok(found)
}

fn read(topic: &str, count: usize, more: Options) -> Outcome<Vec<OwnedMessage>> {
    let consumer: BaseConsumer<Caller> =
        config(&[&[("group.id", topic)], more].concat()).create_with_context(Caller)?;
    let mut start = TopicPartitionList::new();
    start.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&start)?;
    received(&consumer, count)
}

fn values(found: &[OwnedMessage]) -> Vec<String> {
    found
        .iter()
        .map(|each| String::from_utf8_lossy(each.payload().unwrap_or(b"")).into())
        .collect()
}

fn texts(given: &[&str]) -> Vec<String> {
    given.iter().map(|each| each.to_string()).collect()
}

fn codecs() -> Outcome {
    let wanted: Vec<String> = CODECS.iter().map(|codec| codec.repeat(100)).collect();
    for (codec, value) in CODECS.iter().zip(&wanted) {
        write(
            &topic("codecs"),
            &[value.clone()],
            &[("compression.type", codec)],
        )?;
    }
    same(values(&read(&topic("codecs"), 5, &[])?), wanted)
}

fn acks() -> Outcome {
    for acks in ["0", "1", "all"] {
        write(&topic("acks"), &texts(&[acks]), &[("acks", acks)])?;
    }
    let mut found = values(&read(&topic("acks"), 3, &[])?);
    found.sort();
    same(found, texts(&["0", "1", "all"]))
}

fn idempotence() -> Outcome {
    let wanted: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    write(
        &topic("idempotence"),
        &wanted,
        &[("enable.idempotence", "true")],
    )?;
    same(values(&read(&topic("idempotence"), 100, &[])?), wanted)
}

// One aborts, one commits.
fn transactions() -> Outcome {
    let topic = topic("transactions");
    let producer: BaseProducer = config(&[("transactional.id", &topic)]).create()?;
    producer.init_transactions(WAIT)?;
    for value in ["aborted", "committed"] {
        producer.begin_transaction()?;
        producer
            .send(BaseRecord::<(), str>::to(&topic).payload(value))
            .map_err(|(error, _)| error)?;
        producer.flush(WAIT)?;
        if value == "aborted" {
            producer.abort_transaction(WAIT)?;
        } else {
            producer.commit_transaction(WAIT)?;
        }
    }
    let found = read(&topic, 1, &[("isolation.level", "read_committed")])?;
    same(values(&found), texts(&["committed"]))
}

fn member(group: &str, protocol: &str) -> Outcome<BaseConsumer> {
    let consumer: BaseConsumer = config(&[
        ("group.id", group),
        ("group.protocol", protocol),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
    ])
    .create()?;
    consumer.subscribe(&[group])?;
    Ok(consumer)
}

// The offsets of a group are committed with the records.
fn offsets() -> Outcome {
    let topic = topic("offsets");
    write(&topic, &texts(&["in"]), &[])?;
    let consumer = member(&topic, "classic")?;
    received(&consumer, 1)?;
    let producer: BaseProducer = config(&[("transactional.id", &topic)]).create()?;
    producer.init_transactions(WAIT)?;
    producer.begin_transaction()?;
    producer
        .send(BaseRecord::<(), str>::to(&topic).payload("out"))
        .map_err(|(error, _)| error)?;
    let mut position = TopicPartitionList::new();
    position.add_partition_offset(&topic, 0, Offset::Offset(1))?;
    let membership = consumer.group_metadata().ok_or("no membership")?;
    producer.send_offsets_to_transaction(&position, &membership, WAIT)?;
    producer.commit_transaction(WAIT)?;
    let committed = consumer.committed_offsets(position, WAIT)?;
    same(committed.elements()[0].offset(), Offset::Offset(1))
}

// A second member goes on where the first one has committed.
fn group(protocol: &str) -> Outcome {
    let topic = topic(protocol);
    write(&topic, &texts(&["a", "b"]), &[])?;
    for value in ["a", "b"] {
        let consumer = member(&topic, protocol)?;
        let found = received(&consumer, 1)?;
        same(values(&found), texts(&[value]))?;
        let mut position = TopicPartitionList::new();
        position.add_partition_offset(&topic, 0, Offset::Offset(found[0].offset() + 1))?;
        consumer.commit(&position, CommitMode::Sync)?;
    }
    Ok(())
}

fn headers() -> Outcome {
    let topic = topic("headers");
    let wanted = [("a", Some("1")), ("a", Some("")), ("b", None)];
    let mut sent = OwnedHeaders::new();
    for (key, value) in wanted {
        sent = sent.insert(Header { key, value });
    }
    let producer: BaseProducer = config(&[]).create()?;
    let record = BaseRecord::<(), str>::to(&topic).payload("v").headers(sent);
    producer.send(record).map_err(|(error, _)| error)?;
    producer.flush(WAIT)?;
    let message = &read(&topic, 1, &[])?[0];
    let found: Vec<_> = message
        .headers()
        .ok_or("no headers")?
        .iter()
        .map(|each| (each.key, each.value))
        .collect();
    same(
        found,
        wanted
            .map(|(key, value)| (key, value.map(str::as_bytes)))
            .to_vec(),
    )
}

// They are those of the producer, and offsets are found by them.
fn timestamps() -> Outcome {
    let (topic, first) = (topic("timestamps"), 1_700_000_000_000);
    let producer: BaseProducer = config(&[]).create()?;
    for stamp in [first, first + 5_000] {
        let record = BaseRecord::<(), str>::to(&topic)
            .payload("v")
            .timestamp(stamp);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(WAIT)?;
    same(
        read(&topic, 2, &[])?[1].timestamp().to_millis(),
        Some(first + 5_000),
    )?;
    let consumer: BaseConsumer = config(&[("group.id", &topic)]).create()?;
    let mut asked = TopicPartitionList::new();
    asked.add_partition_offset(&topic, 0, Offset::Offset(first + 1))?;
    same(
        consumer.offsets_for_times(asked, WAIT)?.elements()[0].offset(),
        Offset::Offset(1),
    )
}

// What one node has done, another one learns a moment later.
fn eventually(story: impl Fn() -> Outcome) -> Outcome {
    let deadline = Instant::now() + WAIT;
    loop {
        let outcome = story();
        if outcome.is_ok() || Instant::now() > deadline {
            return outcome;
        }
    }
}

// A topic is created, described and deleted.
fn admin() -> Outcome {
    let topic = topic("made");
    let (client, options): (AdminClient<DefaultClientContext>, _) =
        (config(&[]).create()?, AdminOptions::new());
    let made = NewTopic::new(&topic, 2, TopicReplication::Fixed(1)).set("retention.ms", "60000");
    block_on(client.create_topics([&made], &options))?
        .remove(0)
        .map_err(|(_, code)| code)?;
    eventually(|| {
        let metadata = client.inner().fetch_metadata(Some(&topic), WAIT)?;
        same(metadata.topics()[0].partitions().len(), 2)
    })?;
    eventually(|| {
        let mut described =
            block_on(client.describe_configs(&[ResourceSpecifier::Topic(&topic)], &options))?;
        let config = described.remove(0)?;
        same(
            config
                .get("retention.ms")
                .and_then(|entry| entry.value.clone()),
            Some("60000".into()),
        )
    })?;
    block_on(client.delete_topics(&[&topic], &options))?
        .remove(0)
        .map_err(|(_, code)| code)?;
    Ok(())
}

fn login(mechanism: &str, topic: &str) -> Outcome {
    secured(
        topic,
        &[
            ("bootstrap.servers", &setting("SECURE_BOOTSTRAP")),
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", mechanism),
            ("sasl.username", &setting("USERNAME")),
            ("sasl.password", &setting("PASSWORD")),
        ],
    )
}

fn certificate(topic: &str) -> Outcome {
    secured(
        topic,
        &[
            ("bootstrap.servers", &setting("MUTUAL_BOOTSTRAP")),
            ("security.protocol", "SSL"),
            ("ssl.certificate.location", &setting("CERTIFICATE")),
            ("ssl.key.location", &setting("KEY")),
        ],
    )
}

fn secured(topic: &str, more: Options) -> Outcome {
    let ca = setting("CA");
    let options = [more, &[("ssl.ca.location", ca.as_str())]].concat();
    write(topic, &texts(&["secret"]), &options)?;
    same(values(&read(topic, 1, &options)?), texts(&["secret"]))
}

fn main() {
    let features: [(&str, &dyn Fn() -> Outcome); 14] = [
        ("codecs", &codecs),
        ("acks", &acks),
        ("idempotence", &idempotence),
        ("transactions", &transactions),
        ("offsets", &offsets),
        ("classic", &|| group("classic")),
        ("consumer", &|| group("consumer")),
        ("headers", &headers),
        ("timestamps", &timestamps),
        ("admin", &admin),
        ("scram", &|| login("SCRAM-SHA-512", &topic("scram"))),
        ("plain", &|| login("PLAIN", &topic("plain"))),
        ("oauthbearer", &|| {
            login("OAUTHBEARER", &topic("oauthbearer"))
        }),
        ("certificate", &|| certificate(&topic("certificate"))),
    ];
    for (feature, story) in features {
        let (result, note) = match story() {
            Ok(()) => ("passed", String::new()),
            Err(error) => ("failed", error.to_string()),
        };
        println!(
            "{}",
            serde_json::json!({"feature": feature, "result": result, "note": note})
        );
    }
}
