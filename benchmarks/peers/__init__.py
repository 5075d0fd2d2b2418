"""The peers that `bench_peers` measures beside streamtools: their environment, adapters, streams and judge."""
