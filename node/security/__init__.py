"""Identity and permissions of callers: principals, SASL, ACLs, the audit log."""
