"""What mcpx costs: latency, throughput, CPU, start-up and memory beside a direct connection, a
floor and a peer."""
