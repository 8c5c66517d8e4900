"""The web console behind the HTTP port: requests for pages, visitors, and how their pages ask the cluster."""
