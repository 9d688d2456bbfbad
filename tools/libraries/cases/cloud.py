"""Clients of clouds and of models that others run."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "boto3",
        "a client",
        """
        import boto3
        s3 = boto3.client("s3", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
        """,
        """return s3.generate_presigned_url("get_object", {"Bucket": "b", "Key": str(n)}).startswith("https")""",
    ),
    case(
        "aiobotocore",
        "an asynchronous client",
        """
        import asyncio
        from aiobotocore.session import get_session
        loop = asyncio.new_event_loop()
        made = get_session().create_client(
            "s3", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        s3 = loop.run_until_complete(made.__aenter__())
        """,
        """
        where = {"Bucket": "b", "Key": str(n)}
        return loop.run_until_complete(s3.generate_presigned_url("get_object", where)).startswith("https")
        """,
        in_greenlets=False,
    ),
    case(
        "s3fs",
        "a file system",
        """
        import os
        import s3fs
        fs = s3fs.S3FileSystem(
            key="a", secret="b", endpoint_url=os.environ["HTTP_URL"], client_kwargs={"region_name": "eu-central-1"}
        )
        fs.url("b/first")
        """,
        """return fs.url(f"b/{n}").partition("?")[0]""",
        server="http",
        in_greenlets=False,
    ),
    case(
        "gcsfs",
        "a file system that was read",
        """
        import os
        os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
        import gcsfs
        fs = gcsfs.GCSFileSystem(token="anon", endpoint_url=os.environ["HTTP_URL"])
        fs.cat_file("b/first")
        """,
        """return fs.cat_file(f"b/{n}")""",
        server="http",
        in_greenlets=False,
    ),
    case(
        "google-cloud-storage",
        "a client with a kept connection",
        """
        import os
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage
        where = {"api_endpoint": os.environ["HTTP_URL"]}
        client = storage.Client(project="p", credentials=AnonymousCredentials(), client_options=where)
        bucket = client.bucket("b")
        bucket.blob("first").download_as_bytes()
        """,
        """return [bucket.blob(f"{n}-{m}").download_as_bytes() for m in range(20)]""",
        server="http",
    ),
    case(
        "google-cloud-pubsub",
        "a publisher without a server",
        """
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import pubsub_v1
        where = {"api_endpoint": "127.0.0.1:1"}
        publisher = pubsub_v1.PublisherClient(credentials=AnonymousCredentials(), client_options=where)
        """,
        """return publisher.publish("projects/p/topics/t", str(n).encode()).done()""",
    ),
    case(
        "azure-storage-blob",
        "a client",
        """
        from azure.storage.blob import BlobServiceClient
        key = {"account_name": "a", "account_key": "YQ=="}
        client = BlobServiceClient("http://127.0.0.1:1/account", credential=key)
        """,
        """return client.get_blob_client("c", str(n)).url""",
    ),
    case(
        "docker",
        "a client with a kept connection",
        """
        import os
        import docker
        client = docker.DockerClient(os.environ["HTTP_URL"].replace("http", "tcp"), version="1.43")
        client.ping()
        """,
        "return [client.ping() for m in range(20)], n",
        server="http",
    ),
    case(
        "kubernetes",
        "a client with a kept connection",
        """
        import os
        from kubernetes import client
        api = client.CoreV1Api(client.ApiClient(client.Configuration(host=os.environ["HTTP_URL"])))
        def read(name):
            return api.read_namespace(name, _preload_content=False).data
        read("first")
        """,
        """return [read(f"{n}-{m}") for m in range(20)]""",
        server="http",
    ),
    case(
        "openai",
        "a client with a kept connection",
        """
        import os
        import httpx2
        from openai import OpenAI
        client = OpenAI(api_key="k", base_url=os.environ["HTTP_URL"])
        client.get("/first", cast_to=httpx2.Response)
        """,
        """return [client.get(f"/{n}-{m}", cast_to=httpx2.Response).text for m in range(20)]""",
        server="http",
    ),
    case(
        "openai-async",
        "an asynchronous client with a kept connection",
        """
        import asyncio, os
        import httpx2
        from openai import AsyncOpenAI
        loop = asyncio.new_event_loop()
        client = AsyncOpenAI(api_key="k", base_url=os.environ["HTTP_URL"])
        async def get(path):
            return (await client.get(path, cast_to=httpx2.Response)).text
        loop.run_until_complete(get("/first"))
        """,
        """return [loop.run_until_complete(get(f"/{n}-{m}")) for m in range(20)]""",
        "openai",
        server="http",
        in_greenlets=False,
    ),
    case(
        "anthropic",
        "a client with a kept connection",
        """
        import os
        import httpx2
        from anthropic import Anthropic
        client = Anthropic(api_key="k", base_url=os.environ["HTTP_URL"])
        client.get("/first", cast_to=httpx2.Response)
        """,
        """return [client.get(f"/{n}-{m}", cast_to=httpx2.Response).text for m in range(20)]""",
        server="http",
    ),
    case(
        "google-genai",
        "a client with a kept connection",
        """
        import os
        from google import genai
        client = genai.Client(api_key="k", http_options={"base_url": os.environ["HTTP_URL"]})
        def ask(text):
            return client.models.generate_content(model="m", contents=text).candidates
        ask("first")
        """,
        "return [ask(str(m)) for m in range(n, n + 20)]",
        server="http",
    ),
    case(
        "litellm",
        "an answer that is made up",
        """
        import os
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        import litellm
        def ask(text):
            words = [{"role": "user", "content": "?"}]
            answer = litellm.completion(model="gpt-4o", messages=words, mock_response=text, api_key="k")
            return answer.choices[0].message.content
        ask("first")
        """,
        "return ask(str(n))",
    ),
    case(
        "langchain-core",
        "a chain that has run in threads",
        """
        from langchain_core.runnables import RunnableLambda
        chain = RunnableLambda(lambda n: n + 1) | RunnableLambda(lambda n: 2 * n)
        chain.batch([1, 2, 3])
        """,
        "return chain.batch([n, n + 1, n + 2])",
    ),
    case(
        "tiktoken",
        "an encoding that has worked in threads",
        """
        import tiktoken
        ranks = {bytes([m]): m for m in range(256)}
        encoding = tiktoken.Encoding("a", pat_str=r"\\w+|\\W+", mergeable_ranks=ranks, special_tokens={})
        encoding.encode_batch(["some words"] * 4, num_threads=2)
        """,
        """return encoding.encode_batch(["some words"] * (n + 1), num_threads=2)[0][:3]""",
    ),
    case(
        "fsspec-memory",
        "a file system in memory",
        """
        import fsspec
        fs = fsspec.filesystem("memory")
        fs.pipe("/a", b"some words")
        """,
        """return fs.cat("/a") + str(n).encode()""",
        "fsspec",
    ),
]
