// The driver of @platformatic/kafka: `node platformatic_driver.js DIRECTORY`.
"use strict";

const { readFileSync } = require("node:fs");
const { pathToFileURL } = require("node:url");
const zlib = require("node:zlib");
const { CODECS, Unsupported, WAIT_MS, eventually, run, same, setting, topic } = require("./reporting.js");

// The client is for Node.js 22; this is what it uses of it and Node.js 20 does not have.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};

const nodes = { bootstrapBrokers: setting("BOOTSTRAP").split(",") };
const certificates = { ca: [readFileSync(setting("CA"))] };

async function main() {
  const entry = `${process.argv[2]}/node_modules/@platformatic/kafka/dist/index.js`;
  const { Admin, Consumer, ProduceAcks, Producer, stringDeserializers, stringSerializers } = await import(
    pathToFileURL(entry)
  );
  const ACKS = { 0: ProduceAcks.NO_RESPONSE, 1: ProduceAcks.LEADER, all: ProduceAcks.ALL };
  const messagesOf = (to, ...values) => values.map((value) => ({ topic: to, value }));
  const values = (found) => found.map(({ value }) => value);

  async function closing(client, story) {
    try {
      return await story(client);
    } finally {
      // A consumer is told to close its streams too.
      await (client instanceof Consumer ? client.close(true) : client.close());
    }
  }

  const producing = (settings, story) =>
    closing(new Producer({ clientId: "matrix", serializers: stringSerializers, ...nodes, ...settings }), story);
  const administering = (story) => closing(new Admin({ clientId: "matrix", ...nodes }), story);
  const write = (messages, settings = {}) => producing(settings, (producer) => producer.send({ messages }));

  // A member of a group, in a block with its first messages.
  function member(from, count, group, story, settings = {}) {
    const consumer = new Consumer({
      clientId: "matrix", groupId: group, deserializers: stringDeserializers, autocommit: false, maxWaitTime: 500,
      ...nodes, ...settings,
    });
    return closing(consumer, async () => {
      const stream = await consumer.consume({ topics: [from], mode: "committed", fallbackMode: "earliest" });
      const found = [];
      const timer = setTimeout(() => stream.destroy(new Error(`${found.length} records of ${count}`)), WAIT_MS);
      for await (const message of stream) {
        if (found.push(message) === count) break;
      }
      clearTimeout(timer);
      return story(found, consumer);
    });
  }

  const read = (from, count, settings) => member(from, count, `${from}-reader`, (found) => found, settings);

  async function codecs() {
    const possible = CODECS.filter((codec) => codec !== "zstd" || zlib.zstdCompressSync);
    for (const codec of possible) {
      await write(messagesOf(topic("codecs"), codec.repeat(100)), codec === "none" ? {} : { compression: codec });
    }
    same(values(await read(topic("codecs"), possible.length)), possible.map((codec) => codec.repeat(100)));
    if (possible.length < CODECS.length) throw new Unsupported("all but zstd, which needs Node.js 22");
  }

  async function acks() {
    for (const [name, each] of Object.entries(ACKS)) {
      await write(messagesOf(topic("acks"), name), { acks: each });
    }
    same(values(await read(topic("acks"), 3)).sort(), ["0", "1", "all"]);
  }

  async function idempotence() {
    const wanted = Array.from({ length: 100 }, (_, number) => String(number));
    await write(messagesOf(topic("idempotence"), ...wanted), { idempotent: true });
    same(values(await read(topic("idempotence"), 100)), wanted);
  }

  // One aborts, one commits.
  async function transactions() {
    const to = topic("transactions");
    await producing({ idempotent: true, transactionalId: to }, async (producer) => {
      for (const value of ["aborted", "committed"]) {
        const transaction = await producer.beginTransaction();
        await transaction.send({ messages: messagesOf(to, value) });
        await (value === "aborted" ? transaction.abort() : transaction.commit());
      }
    });
    same(values(await read(to, 1)), ["committed"]);
  }

  // The offsets of a group are committed with the records.
  async function offsets() {
    const group = topic("offsets");
    await write(messagesOf(group, "in"));
    await member(group, 1, group, ([message], consumer) =>
      producing({ idempotent: true, transactionalId: group }, async (producer) => {
        const transaction = await producer.beginTransaction();
        await transaction.addConsumer(consumer);
        await transaction.send({ messages: messagesOf(group, "out") });
        await transaction.addOffset(message);
        await transaction.commit();
      }),
    );
    const asked = { groups: [{ groupId: group, topics: [{ name: group, partitionIndexes: [0] }] }] };
    await eventually(() =>
      administering(async (admin) => {
        const [{ topics }] = await admin.listConsumerGroupOffsets(asked);
        same(Number(topics[0].partitions[0].committedOffset), 1);
      }),
    );
  }

  // A second member goes on where the first one has committed.
  async function group(protocol, settings) {
    const name = topic(protocol);
    await write(messagesOf(name, "a", "b"));
    for (const value of ["a", "b"]) {
      const story = async (found) => {
        same(values(found), [value]);
        await found[0].commit();
      };
      await member(name, 1, name, story, settings);
    }
  }

  async function headers() {
    await write([{ topic: topic("headers"), value: "v", headers: { a: "1", b: "" } }]);
    const [message] = await read(topic("headers"), 1);
    same([...message.headers], [["a", "1"], ["b", ""]]);
  }

  // They are those of the producer, and offsets are found by them.
  async function timestamps() {
    const [name, first] = [topic("timestamps"), 1_700_000_000_000n];
    const stamps = [first, first + 5_000n];
    await write(stamps.map((timestamp) => ({ topic: name, value: "v", timestamp })));
    same((await read(name, 2)).map(({ timestamp }) => Number(timestamp)), stamps.map(Number));
    const anyone = new Consumer({ clientId: "matrix", groupId: name, ...nodes });
    await closing(anyone, async (consumer) => {
      const found = await consumer.listOffsets({ topics: [name], timestamp: first + 1n });
      same(found.get(name).map(Number), [1]);
    });
  }

  // A topic is created, described and deleted.
  async function admin() {
    const made = topic("made");
    await administering(async (client) => {
      const configs = [{ name: "retention.ms", value: "60000" }];
      await client.createTopics({ topics: [made], partitions: 2, replicas: 1, configs });
      await eventually(async () => {
        const { topics } = await client.metadata({ topics: [made], forceUpdate: true });
        same(topics.get(made).partitionsCount, 2);
      });
      await client.deleteTopics({ topics: [made] });
    });
  }

  async function secured(feature, settings) {
    await write(messagesOf(topic(feature), "secret"), settings);
    same(values(await read(topic(feature), 1, settings)), ["secret"]);
  }

  const login = (feature, sasl) => () =>
    secured(feature, { bootstrapBrokers: [setting("SECURE_BOOTSTRAP")], tls: certificates, sasl });
  const user = { username: setting("USERNAME"), password: setting("PASSWORD") };
  const own = { cert: readFileSync(setting("CERTIFICATE")), key: readFileSync(setting("KEY")) };

  await run({
    "codecs": codecs,
    "acks": acks,
    "idempotence": idempotence,
    "transactions": transactions,
    "offsets": offsets,
    "classic": () => group("classic", {}),
    "consumer": () => group("consumer", { groupProtocol: "consumer" }),
    "headers": headers,
    "timestamps": timestamps,
    "admin": admin,
    "scram": login("scram", { mechanism: "SCRAM-SHA-512", ...user }),
    "plain": login("plain", { mechanism: "PLAIN", ...user }),
    "oauthbearer": login("oauthbearer", { mechanism: "OAUTHBEARER", token: setting("TOKEN") }),
    "certificate": () =>
      secured("certificate", {
        bootstrapBrokers: [setting("MUTUAL_BOOTSTRAP")], tls: { ...certificates, ...own },
      }),
  });
}

main();
