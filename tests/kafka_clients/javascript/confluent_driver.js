// The driver of @confluentinc/kafka-javascript, librdkafka for Node.js: `node confluent_driver.js DIRECTORY`.
"use strict";

const { CODECS, Unsupported, WAIT_MS, eventually, load, run, same, setting, topic } = require("./reporting.js");

const { KafkaJS: library, features } = load("@confluentinc/kafka-javascript");
const nodes = { brokers: setting("BOOTSTRAP").split(",") };

// own: settings of librdkafka.
function kafka({ own, ...settings }) {
  return new library.Kafka({ kafkaJS: { ...settings, logLevel: library.logLevel.NOTHING }, ...own });
}

async function connected(client, story) {
  await client.connect();
  try {
    return await story(client);
  } finally {
    await client.disconnect();
  }
}

const producing = (settings, story, at = nodes) => connected(kafka(at).producer({ kafkaJS: settings }), story);
const administering = (story) => connected(kafka(nodes).admin(), story);
const write = (to, messages, settings = {}, at = nodes) =>
  producing(settings, (producer) => producer.send({ topic: to, messages }), at);

const values = (found) => found.map(({ value }) => value.toString());
const messagesOf = (...texts) => texts.map((value) => ({ value }));

// A member of a group, in a block with its first messages.
function member(from, count, group, story, { at = nodes, own = {} } = {}) {
  const settings = { groupId: group, fromBeginning: true, autoCommit: false };
  return connected(kafka(at).consumer({ kafkaJS: settings, ...own }), async (consumer) => {
    await consumer.subscribe({ topics: [from] });
    const found = [];
    await new Promise((done, failed) => {
      const timer = setTimeout(() => failed(new Error(`${found.length} records of ${count}`)), WAIT_MS);
      const eachMessage = async ({ message }) => {
        if (found.length < count && found.push(message) === count) {
          clearTimeout(timer);
          done();
        }
      };
      consumer.run({ eachMessage }).catch(failed);
    });
    return story(found, consumer);
  });
}

const read = (from, count, options) => member(from, count, `${from}-reader`, (found) => found, options);

async function codecs() {
  const possible = CODECS.filter((codec) => codec !== "zstd" || features.includes("zstd"));
  for (const codec of possible) {
    await write(topic("codecs"), messagesOf(codec.repeat(100)), { compression: codec });
  }
  same(values(await read(topic("codecs"), possible.length)), possible.map((codec) => codec.repeat(100)));
  if (possible.length < CODECS.length) throw new Unsupported("all but zstd, without whose headers it was compiled");
}

async function acks() {
  for (const each of [0, 1, -1]) {
    await write(topic("acks"), messagesOf(String(each)), { acks: each });
  }
  same(values(await read(topic("acks"), 3)).sort(), ["-1", "0", "1"]);
}

async function idempotence() {
  const wanted = Array.from({ length: 100 }, (_, number) => String(number));
  await write(topic("idempotence"), messagesOf(...wanted), { idempotent: true });
  same(values(await read(topic("idempotence"), 100)), wanted);
}

// One aborts, one commits.
async function transactions() {
  const to = topic("transactions");
  await producing({ transactionalId: to }, async (producer) => {
    for (const value of ["aborted", "committed"]) {
      const transaction = await producer.transaction();
      await transaction.send({ topic: to, messages: messagesOf(value) });
      await (value === "aborted" ? transaction.abort() : transaction.commit());
    }
  });
  same(values(await read(to, 1)), ["committed"]);
}

// The offsets of a group are committed with the records.
async function offsets() {
  const group = topic("offsets");
  await write(group, messagesOf("in"));
  await member(group, 1, group, (_, consumer) =>
    producing({ transactionalId: group }, async (producer) => {
      const transaction = await producer.transaction();
      await transaction.send({ topic: group, messages: messagesOf("out") });
      await transaction.sendOffsets({ consumer, topics: [{ topic: group, partitions: [{ partition: 0, offset: "1" }] }] });
      await transaction.commit();
    }),
  );
  const asked = { groupId: group, topics: [group], requireStableOffsets: true };
  const found = await administering((admin) => admin.fetchOffsets(asked));
  same(Number(found[0].partitions[0].offset), 1);
}

// A second member goes on where the first one has committed.
async function group(protocol, own) {
  const name = topic(protocol);
  await write(name, messagesOf("a", "b"));
  for (const value of ["a", "b"]) {
    const story = async (found, consumer) => {
      same(values(found), [value]);
      await consumer.commitOffsets([{ topic: name, partition: 0, offset: String(Number(found[0].offset) + 1) }]);
    };
    await member(name, 1, name, story, { own });
  }
}

async function headers() {
  await write(topic("headers"), [{ value: "v", headers: { a: ["1", ""], b: "2" } }]);
  const [message] = await read(topic("headers"), 1);
  const found = Object.entries(message.headers).map(([name, value]) => [name, [value].flat().map(String)]);
  same(Object.fromEntries(found), { a: ["1", ""], b: ["2"] });
}

// They are those of the producer, and offsets are found by them.
async function timestamps() {
  const [name, first] = [topic("timestamps"), 1_700_000_000_000];
  const stamps = [first, first + 5_000].map(String);
  await write(name, stamps.map((timestamp) => ({ value: "v", timestamp })));
  same((await read(name, 2)).map(({ timestamp }) => timestamp), stamps);
  const found = await administering((admin) => admin.fetchTopicOffsetsByTimestamp(name, first + 1));
  same(found.map(({ offset }) => Number(offset)), [1]);
}

// A topic is created, described and deleted.
async function admin() {
  const made = topic("made");
  await administering(async (client) => {
    const configEntries = [{ name: "retention.ms", value: "60000" }];
    await client.createTopics({ topics: [{ topic: made, numPartitions: 2, replicationFactor: 1, configEntries }] });
    await eventually(async () => {
      const [described] = await client.fetchTopicMetadata({ topics: [made] });
      same(described.partitions.length, 2);
    });
    await client.deleteTopics({ topics: [made] });
  });
}

const authority = { "ssl.ca.location": setting("CA") };

async function secured(feature, at) {
  await write(topic(feature), messagesOf("secret"), {}, at);
  same(values(await read(topic(feature), 1, { at })), ["secret"]);
}

const login = (feature, sasl) => () =>
  secured(feature, { brokers: [setting("SECURE_BOOTSTRAP")], ssl: true, sasl, own: authority });
const user = { username: setting("USERNAME"), password: setting("PASSWORD") };
const token = { value: setting("TOKEN"), principal: setting("USERNAME"), lifetime: Date.now() + 3_600_000 };
const certificate = { "ssl.certificate.location": setting("CERTIFICATE"), "ssl.key.location": setting("KEY") };

run({
  "codecs": codecs,
  "acks": acks,
  "idempotence": idempotence,
  "transactions": transactions,
  "offsets": offsets,
  "classic": () => group("classic", {}),
  "consumer": () => group("consumer", { "group.protocol": "consumer" }),
  "headers": headers,
  "timestamps": timestamps,
  "admin": admin,
  "scram": login("scram", { mechanism: "scram-sha-512", ...user }),
  "plain": login("plain", { mechanism: "plain", ...user }),
  "oauthbearer": login("oauthbearer", { mechanism: "oauthbearer", oauthBearerProvider: async () => token }),
  "certificate": () =>
    secured("certificate", { brokers: [setting("MUTUAL_BOOTSTRAP")], ssl: true, own: { ...authority, ...certificate } }),
});
