"""Who calls and what each caller may do: principals, SASL, permissions by ACLs, the audit log."""
