"""The state that files ask of a cluster: topics, users, ACLs, quotas; and the changes that make the cluster so."""
