"""What many write themselves: boto3, a pool of threads, `download_file`. For the benchmark's own Python."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.config import Config

THREADS = 32


def main(endpoint: str, bucket: str, prefix: str, target: str) -> None:
    client = boto3.client("s3", endpoint_url=endpoint, config=Config(max_pool_connections=2 * THREADS))
    made: set[str] = set()

    def fetch(key: str) -> None:
        client.download_file(bucket, key, os.path.join(target, key[len(prefix) :]))

    with ThreadPoolExecutor(THREADS) as pool:
        running = []
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for item in page.get("Contents", ()):
                folder = os.path.dirname(os.path.join(target, item["Key"][len(prefix) :]))
                if folder not in made:
                    os.makedirs(folder, exist_ok=True)
                    made.add(folder)
                running.append(pool.submit(fetch, item["Key"]))
        for one in running:
            one.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
