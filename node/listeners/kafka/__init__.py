"""The listener of Kafka's protocol: frames, codecs and translators of requests. Everything else is the boundary's."""
