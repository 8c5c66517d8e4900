"""Security that clients and nodes share: TLS files, certificates, principals, access control lists, SASL."""
