// The driver of KafkaJS: `node kafkajs_driver.js DIRECTORY`.
"use strict";

const { readFileSync } = require("node:fs");
const { CODECS, Unsupported, WAIT_MS, eventually, load, run, same, setting, topic } = require("./reporting.js");

const library = load("kafkajs");
const nodes = { brokers: setting("BOOTSTRAP").split(",") };

// KafkaJS has gzip itself, and takes the other codecs from packages.
const { CompressionCodecs, CompressionTypes } = library;
const lz4 = load("lz4-napi");
const zstd = load("@mongodb-js/zstd");
CompressionCodecs[CompressionTypes.Snappy] = load("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: ({ buffer }) => lz4.compressFrame(buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: ({ buffer }) => zstd.compress(buffer),
  decompress: (buffer) => zstd.decompress(buffer),
});

function compression(codec) {
  const name = Object.keys(CompressionTypes).find((each) => each.toLowerCase() === codec);
  return CompressionTypes[name];
}

// certified: with a certificate of the caller.
function kafka({ certified, ...settings }) {
  const ssl = (settings.sasl || certified) && {
    ca: [readFileSync(setting("CA"))],
    ...(certified && { cert: readFileSync(setting("CERTIFICATE")), key: readFileSync(setting("KEY")) }),
  };
  return new library.Kafka({ ...settings, ssl, logLevel: library.logLevel.NOTHING });
}

function producerOf(at, settings) {
  return kafka(at).producer({ ...settings, createPartitioner: library.Partitioners.DefaultPartitioner });
}

async function write(to, messages, { acks = -1, codec = "none", settings = {}, at = nodes } = {}) {
  const producer = producerOf(at, settings);
  await producer.connect();
  try {
    await producer.send({ topic: to, messages, acks, compression: compression(codec) });
  } finally {
    await producer.disconnect();
  }
}

const values = (found) => found.map(({ value }) => value.toString());
const messagesOf = (...texts) => texts.map((value) => ({ value }));

// A member of a group: KafkaJS does not read without one. Returns it with its first messages.
async function member(from, count, group, { at = nodes } = {}) {
  const consumer = kafka(at).consumer({ groupId: group });
  await consumer.connect();
  await consumer.subscribe({ topics: [from], fromBeginning: true });
  const found = [];
  await new Promise((done, failed) => {
    const timer = setTimeout(() => failed(new Error(`${found.length} records of ${count}`)), WAIT_MS);
    const eachMessage = async ({ message }) => {
      if (found.length < count && found.push(message) === count) {
        clearTimeout(timer);
        done();
      }
    };
    consumer.run({ autoCommit: false, eachMessage }).catch(failed);
  });
  return { consumer, found };
}

async function read(from, count, options) {
  const { consumer, found } = await member(from, count, `${from}-reader`, options);
  await consumer.disconnect();
  return found;
}

async function administer(story) {
  const admin = kafka(nodes).admin();
  await admin.connect();
  try {
    return await story(admin);
  } finally {
    await admin.disconnect();
  }
}

async function codecs() {
  const wanted = CODECS.map((codec) => codec.repeat(100));
  for (const codec of CODECS) {
    await write(topic("codecs"), messagesOf(codec.repeat(100)), { codec });
  }
  same(values(await read(topic("codecs"), 5)), wanted);
}

async function acks() {
  for (const each of [0, 1, -1]) {
    await write(topic("acks"), messagesOf(String(each)), { acks: each });
  }
  same(values(await read(topic("acks"), 3)).sort(), ["-1", "0", "1"]);
}

async function idempotence() {
  const wanted = Array.from({ length: 100 }, (_, number) => String(number));
  await write(topic("idempotence"), messagesOf(...wanted), { settings: { idempotent: true } });
  same(values(await read(topic("idempotence"), 100)), wanted);
}

async function transactional(id, story) {
  const settings = { transactionalId: id, idempotent: true, maxInFlightRequests: 1 };
  const producer = producerOf(nodes, settings);
  await producer.connect();
  try {
    await story(producer);
  } finally {
    await producer.disconnect();
  }
}

// One aborts, one commits.
async function transactions() {
  const to = topic("transactions");
  await transactional(to, async (producer) => {
    for (const value of ["aborted", "committed"]) {
      const transaction = await producer.transaction();
      await transaction.send({ topic: to, messages: messagesOf(value) });
      await (value === "aborted" ? transaction.abort() : transaction.commit());
    }
  });
  same(values(await read(to, 1)), ["committed"]);
}

async function committed(group) {
  const found = await administer((admin) => admin.fetchOffsets({ groupId: group, topics: [group] }));
  return Number(found[0].partitions[0].offset);
}

// The offsets of a group are committed with the records.
async function offsets() {
  const group = topic("offsets");
  await write(group, messagesOf("in"));
  const { consumer } = await member(group, 1, group);
  await transactional(group, async (producer) => {
    const transaction = await producer.transaction();
    await transaction.send({ topic: group, messages: messagesOf("out") });
    const topics = [{ topic: group, partitions: [{ partition: 0, offset: "1" }] }];
    await transaction.sendOffsets({ topics, consumerGroupId: group });
    await transaction.commit();
  });
  await consumer.disconnect();
  await eventually(async () => same(await committed(group), 1)); // KafkaJS does not ask for stable offsets
}

// A second member goes on where the first one has committed.
async function classic() {
  const name = topic("classic");
  await write(name, messagesOf("a", "b"));
  for (const value of ["a", "b"]) {
    const { consumer, found } = await member(name, 1, name);
    same(values(found), [value]);
    await consumer.commitOffsets([{ topic: name, partition: 0, offset: String(Number(found[0].offset) + 1) }]);
    await consumer.disconnect();
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
  const found = await administer((admin) => admin.fetchTopicOffsetsByTimestamp(name, first + 1));
  same(found.map(({ offset }) => Number(offset)), [1]);
}

// A topic is created, described and deleted.
async function admin() {
  const made = topic("made");
  await administer(async (client) => {
    const configEntries = [{ name: "retention.ms", value: "60000" }];
    await client.createTopics({ topics: [{ topic: made, numPartitions: 2, replicationFactor: 1, configEntries }] });
    await eventually(async () => {
      const { topics } = await client.fetchTopicMetadata({ topics: [made] });
      same(topics[0].partitions.length, 2);
    });
    const resource = { type: library.ConfigResourceTypes.TOPIC, name: made, configNames: ["retention.ms"] };
    await eventually(async () => {
      const { resources } = await client.describeConfigs({ resources: [resource], includeSynonyms: false });
      same(resources[0].configEntries.map(({ configValue }) => configValue), ["60000"]);
    });
    await client.deleteTopics({ topics: [made] });
  });
}

async function secured(feature, at) {
  await write(topic(feature), messagesOf("secret"), { at });
  same(values(await read(topic(feature), 1, { at })), ["secret"]);
}

function login(feature, sasl) {
  return () => secured(feature, { brokers: [setting("SECURE_BOOTSTRAP")], sasl });
}

const user = { username: setting("USERNAME"), password: setting("PASSWORD") };
const token = { value: setting("TOKEN") };

run({
  "codecs": codecs,
  "acks": acks,
  "idempotence": idempotence,
  "transactions": transactions,
  "offsets": offsets,
  "classic": classic,
  "consumer": () => {
    throw new Unsupported("KafkaJS does not have KIP-848");
  },
  "headers": headers,
  "timestamps": timestamps,
  "admin": admin,
  "scram": login("scram", { mechanism: "scram-sha-512", ...user }),
  "plain": login("plain", { mechanism: "plain", ...user }),
  "oauthbearer": login("oauthbearer", { mechanism: "oauthbearer", oauthBearerProvider: async () => token }),
  "certificate": () => secured("certificate", { brokers: [setting("MUTUAL_BOOTSTRAP")], certified: true }),
});
