"""What is made from the table of metrics: docs/metrics.md, Prometheus' alert rules, Grafana's dashboards."""
