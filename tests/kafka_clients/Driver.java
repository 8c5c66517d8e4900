// The driver of Kafka's own Java clients: `java -cp JARS Driver.java`. See matrix.py for what it prints.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

class Driver {
    interface Story {
        void run() throws Exception;
    }

    static final long WAIT_MS = 30_000;
    static final String PREFIX = System.getenv("MATRIX_PREFIX");
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    public static void main(String[] arguments) {
        Map<String, Story> features = new LinkedHashMap<>();
        features.put("codecs", Driver::codecs);
        features.put("acks", Driver::acks);
        features.put("idempotence", Driver::idempotence);
        features.put("transactions", Driver::transactions);
        features.put("offsets", Driver::offsets);
        features.put("classic", () -> group("classic"));
        features.put("consumer", () -> group("consumer"));
        features.put("headers", Driver::headers);
        features.put("timestamps", Driver::timestamps);
        features.put("admin", Driver::admin);
        features.put("scram", () -> login("SCRAM-SHA-512", "scram.ScramLoginModule", "scram"));
        features.put("plain", () -> login("PLAIN", "plain.PlainLoginModule", "plain"));
        features.put("oauthbearer", () -> token("oauthbearer"));
        features.put("certificate", () -> certificate("certificate"));
        features.forEach(Driver::report);
        System.exit(0);
    }

    static void report(String feature, Story story) {
        String result = "passed";
        String note = "";
        try {
            story.run();
        } catch (Throwable error) {
            result = "failed";
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            note = cause.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
        }
        System.out.printf("{\"feature\": \"%s\", \"result\": \"%s\", \"note\": \"%s\"}%n", feature, result, note);
    }

    static void check(boolean holds, Object otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    // What one node has done, another one learns a moment later.
    static void eventually(Story story) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (true) {
            try {
                story.run();
                return;
            } catch (ExecutionException error) {
                if (System.currentTimeMillis() > deadline) {
                    throw error;
                }
            }
        }
    }

    static Map<String, Object> config(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", System.getenv("MATRIX_BOOTSTRAP"));
        config.putAll(more);
        return config;
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        return new KafkaProducer<>(config(more), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        return new KafkaConsumer<>(config(more), new StringDeserializer(), new StringDeserializer());
    }

    static void write(String topic, List<String> values, Map<String, Object> more) throws Exception {
        try (var producer = producer(more)) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, value)).get(WAIT_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    static List<ConsumerRecord<String, String>> received(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (records.size() < count) {
            check(System.currentTimeMillis() < deadline, records.size() + " records of " + count);
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        }
        return records;
    }

    static List<ConsumerRecord<String, String>> read(String topic, int count, Map<String, Object> more) {
        try (var consumer = consumer(more)) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(Set.of(partition));
            consumer.seekToBeginning(Set.of(partition));
            return received(consumer, count);
        }
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).collect(Collectors.toList());
    }

    static void codecs() throws Exception {
        for (String codec : CODECS) {
            write(PREFIX + "-codecs", List.of(codec.repeat(100)), Map.of("compression.type", codec));
        }
        var wanted = CODECS.stream().map(codec -> codec.repeat(100)).collect(Collectors.toList());
        check(values(read(PREFIX + "-codecs", 5, Map.of())).equals(wanted), "other records");
    }

    static void acks() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            write(PREFIX + "-acks", List.of(acks), Map.of("acks", acks, "enable.idempotence", false));
        }
        check(Set.copyOf(values(read(PREFIX + "-acks", 3, Map.of()))).equals(Set.of("0", "1", "all")), "other records");
    }

    static void idempotence() throws Exception {
        List<String> wanted = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            wanted.add(String.valueOf(number));
        }
        try (var producer = producer(Map.of("enable.idempotence", true, "linger.ms", 0))) {
            wanted.forEach(value -> producer.send(new ProducerRecord<>(PREFIX + "-idempotence", value)));
        }
        check(values(read(PREFIX + "-idempotence", 100, Map.of())).equals(wanted), "another order");
    }

    // One aborts, one commits.
    static void transactions() throws Exception {
        String topic = PREFIX + "-transactions";
        try (var producer = producer(Map.of("transactional.id", topic))) {
            producer.initTransactions();
            for (String value : List.of("aborted", "committed")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, value)).get(WAIT_MS, TimeUnit.MILLISECONDS);
                if (value.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        var found = values(read(topic, 1, Map.of("isolation.level", "read_committed")));
        check(found.equals(List.of("committed")), found);
    }

    // The offsets of a group are committed with the records.
    static void offsets() throws Exception {
        String topic = PREFIX + "-offsets";
        write(topic, List.of("in"), Map.of());
        try (var consumer = consumer(member(topic, Map.of()));
                var producer = producer(Map.of("transactional.id", topic))) {
            consumer.subscribe(List.of(topic));
            received(consumer, 1);
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "out"));
            var partition = new TopicPartition(topic, 0);
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.commitTransaction();
            var committed = consumer.committed(Set.of(partition)).get(partition);
            check(committed != null && committed.offset() == 1, committed);
        }
    }

    static Map<String, Object> member(String group, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.putAll(Map.of("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", false));
        config.put("max.poll.records", 1);
        return config;
    }

    // A second member goes on where the first one has committed.
    static void group(String protocol) throws Exception {
        String topic = PREFIX + "-" + protocol;
        write(topic, List.of("a", "b"), Map.of());
        for (String value : List.of("a", "b")) {
            try (var consumer = consumer(member(topic, Map.of("group.protocol", protocol)))) {
                consumer.subscribe(List.of(topic));
                var records = received(consumer, 1);
                check(values(records).equals(List.of(value)), values(records));
                consumer.commitSync();
            }
        }
    }

    static void headers() throws Exception {
        String topic = PREFIX + "-headers";
        var record = new ProducerRecord<String, String>(topic, "v");
        record.headers().add("a", new byte[] {1}).add("a", new byte[0]).add("b", null);
        try (var producer = producer(Map.of())) {
            producer.send(record).get(WAIT_MS, TimeUnit.MILLISECONDS);
        }
        var headers = read(topic, 1, Map.of()).get(0).headers().toArray();
        check(headers.length == 3 && headers[0].value()[0] == 1 && headers[1].value().length == 0
                && headers[2].key().equals("b") && headers[2].value() == null, "other headers");
    }

    // They are those of the producer, and offsets are found by them.
    static void timestamps() throws Exception {
        String topic = PREFIX + "-timestamps";
        long first = 1_700_000_000_000L;
        try (var producer = producer(Map.of())) {
            for (long stamp : new long[] {first, first + 5_000}) {
                producer.send(new ProducerRecord<>(topic, null, stamp, null, "v")).get(WAIT_MS, TimeUnit.MILLISECONDS);
            }
        }
        check(read(topic, 2, Map.of()).get(1).timestamp() == first + 5_000, "another timestamp");
        try (var consumer = consumer(Map.of())) {
            var partition = new TopicPartition(topic, 0);
            var found = consumer.offsetsForTimes(Map.of(partition, first + 1)).get(partition);
            check(found != null && found.offset() == 1, found);
        }
    }

    // A topic is created, described and deleted.
    static void admin() throws Exception {
        String topic = PREFIX + "-made";
        try (var admin = Admin.create(config(Map.of()))) {
            var made = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "60000"));
            admin.createTopics(List.of(made)).all().get(WAIT_MS, TimeUnit.MILLISECONDS);
            eventually(() -> {
                var described = admin.describeTopics(List.of(topic)).allTopicNames().get();
                check(described.get(topic).partitions().size() == 2, described);
            });
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            eventually(() -> {
                var configs = admin.describeConfigs(List.of(resource)).all().get();
                check(configs.get(resource).get("retention.ms").value().equals("60000"), configs);
            });
            admin.deleteTopics(List.of(topic)).all().get(WAIT_MS, TimeUnit.MILLISECONDS);
        }
    }

    static void login(String mechanism, String module, String feature) throws Exception {
        String jaas = "org.apache.kafka.common.security.%s required username=\"%s\" password=\"%s\";"
                .formatted(module, System.getenv("MATRIX_USERNAME"), System.getenv("MATRIX_PASSWORD"));
        secured(feature, "SECURE_BOOTSTRAP", Map.of(
                "security.protocol", "SASL_SSL", "sasl.mechanism", mechanism, "sasl.jaas.config", jaas));
    }

    // The client asks the token endpoint for a token.
    static void token(String feature) throws Exception {
        String bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin";
        String endpoint = System.getenv("MATRIX_TOKEN_ENDPOINT");
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", endpoint);
        secured(feature, "SECURE_BOOTSTRAP", Map.of(
                "security.protocol", "SASL_SSL",
                "sasl.mechanism", "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url", endpoint,
                "sasl.login.callback.handler.class", bearer + "CallbackHandler",
                "sasl.jaas.config", bearer + "Module required clientId=\"matrix\" clientSecret=\"secret\";"));
    }

    static void certificate(String feature) throws Exception {
        Map<String, Object> ssl = Map.of(
                "security.protocol", "SSL",
                "ssl.keystore.type", "PEM",
                "ssl.keystore.certificate.chain", Files.readString(Path.of(System.getenv("MATRIX_CERTIFICATE"))),
                "ssl.keystore.key", Files.readString(Path.of(System.getenv("MATRIX_KEY"))));
        secured(feature, "MUTUAL_BOOTSTRAP", ssl);
    }

    static void secured(String feature, String bootstrap, Map<String, Object> more) throws Exception {
        Map<String, Object> secure = new HashMap<>(more);
        secure.put("bootstrap.servers", System.getenv("MATRIX_" + bootstrap));
        secure.put("ssl.truststore.type", "PEM");
        secure.put("ssl.truststore.location", System.getenv("MATRIX_CA"));
        write(PREFIX + "-" + feature, List.of("secret"), secure);
        check(values(read(PREFIX + "-" + feature, 1, secure)).equals(List.of("secret")), "other records");
    }
}
