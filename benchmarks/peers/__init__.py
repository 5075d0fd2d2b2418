"""The peers that `bench_peers` compares with streamtools: their environment, adapters, streams and judge."""
