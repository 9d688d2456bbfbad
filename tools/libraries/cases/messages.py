"""Queues, brokers and calls between processes."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "grpcio",
        "a channel",
        """
        import grpc
        channel = grpc.insecure_channel("127.0.0.1:1")
        """,
        """
        try:
            channel.unary_unary("/a/b")(b"", timeout=1)
        except grpc.RpcError as error:
            return str(error.code())
        """,
    ),
    case(
        "pyzmq",
        "a context with a socket",
        """
        import zmq
        context = zmq.Context()
        push = context.socket(zmq.PUSH)
        pull = context.socket(zmq.PULL)
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        push.connect(f"tcp://127.0.0.1:{port}")
        """,
        """
        push.send_string(str(n))
        return pull.recv_string()
        """,
        differs=True,
    ),
    case(
        "confluent-kafka",
        "a producer without a broker",
        """
        from confluent_kafka import Producer
        p = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        """,
        """
        p.produce("t", str(n))
        return len(p)
        """,
        differs=True,
    ),
    case(
        "zeroconf",
        "an instance",
        """
        from zeroconf import Zeroconf
        z = Zeroconf(interfaces=["127.0.0.1"])
        """,
        """return z.get_service_info("_http._tcp.local.", f"x{n}._http._tcp.local.", timeout=100)""",
    ),
    case(
        "grpc-server",
        "a server in threads and a channel to it",
        """
        from concurrent.futures import ThreadPoolExecutor
        import grpc
        echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        handler = grpc.method_handlers_generic_handler("a", {"echo": echo})
        server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        ask = channel.unary_unary("/a/echo")
        ask(b"first", timeout=10)
        """,
        "return [ask(str(m).encode(), timeout=10) for m in range(n, n + 30)]",
        "grpcio",
    ),
    case(
        "grpc-aio",
        "an asynchronous server and a channel to it",
        """
        import asyncio
        import grpc
        loop = asyncio.new_event_loop()
        async def answer(request, context):
            return request
        async def opened():
            echo = grpc.unary_unary_rpc_method_handler(answer)
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", {"echo": echo}),))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            return server, grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        server, channel = loop.run_until_complete(opened())
        async def ask(n):
            return await channel.unary_unary("/a/echo")(str(n).encode(), timeout=10)
        loop.run_until_complete(ask(1))
        """,
        "return [loop.run_until_complete(ask(m)) for m in range(n, n + 30)]",
        "grpcio",
        in_greenlets=False,
    ),
    case(
        "celery",
        "an app that has sent a task",
        """
        import os
        from celery import Celery
        app = Celery("a", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
        app.send_task("first")
        """,
        """return [bool(app.send_task("other", args=[m]).id) for m in range(n, n + 20)]""",
        "celery[redis]",
        server="redis",
    ),
    case(
        "rq",
        "a queue with a job",
        """
        import os
        from redis import Redis
        from rq import Queue
        queue = Queue(connection=Redis.from_url(os.environ["REDIS_URL"]))
        queue.enqueue(abs, -1)
        """,
        "return [queue.enqueue(abs, -m).args[0] for m in range(n, n + 20)]",
        server="redis",
    ),
    case(
        "huey",
        "a task that was sent",
        """
        import os
        from huey import RedisHuey
        huey = RedisHuey("a", url=os.environ["REDIS_URL"])
        @huey.task()
        def double(n):
            return 2 * n
        double(1)
        """,
        "return [bool(double(m).id) for m in range(n, n + 20)]",
        "huey",
        "redis",
        server="redis",
    ),
    case(
        "dramatiq",
        "an actor that was sent to",
        """
        import os
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker
        dramatiq.set_broker(RedisBroker(url=os.environ["REDIS_URL"]))
        @dramatiq.actor
        def double(n):
            return 2 * n
        double.send(1)
        """,
        "return [double.send(m).args[0] for m in range(n, n + 20)]",
        "dramatiq[redis]",
        server="redis",
    ),
    case(
        "kombu",
        "a queue in memory",
        """
        from kombu import Connection
        queue = Connection("memory://").SimpleQueue("q")
        queue.put("first")
        queue.get(timeout=5).ack()
        """,
        """
        queue.put(n)
        return queue.get(timeout=5).payload
        """,
    ),
    case(
        "kafka-python",
        "a producer without a broker",
        """
        from kafka import KafkaProducer
        from kafka.errors import KafkaTimeoutError
        producer = KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(2, 6), max_block_ms=300)
        """,
        """
        try:
            producer.send("t", str(n).encode())
        except KafkaTimeoutError as error:
            return type(error).__name__
        """,
    ),
    case(
        "aiokafka",
        "a producer without a broker",
        """
        import asyncio
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaConnectionError
        loop = asyncio.new_event_loop()
        async def made():
            return AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
        producer = loop.run_until_complete(made())
        """,
        """
        try:
            loop.run_until_complete(producer.start())
        except KafkaConnectionError as error:
            return type(error).__name__
        """,
        in_greenlets=False,
    ),
    case(
        "pulsar-client",
        "a client without a broker",
        """
        import pulsar
        client = pulsar.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=1)
        """,
        """
        try:
            client.create_producer("t")
        except pulsar.exceptions.PulsarException as error:
            return isinstance(error, Exception)
        """,
    ),
    case(
        "pika",
        "parameters of a connection",
        """
        import pika
        from pika.exceptions import AMQPConnectionError
        parameters = pika.ConnectionParameters("127.0.0.1", 1)
        """,
        """
        try:
            pika.BlockingConnection(parameters)
        except AMQPConnectionError as error:
            return type(error).__name__
        """,
    ),
    case(
        "stomp",
        "a connection without a broker",
        """
        import stomp
        from stomp.exception import ConnectFailedException
        link = stomp.Connection([("127.0.0.1", 1)], reconnect_attempts_max=1)
        """,
        """
        try:
            link.connect()
        except ConnectFailedException as error:
            return type(error).__name__
        """,
        "stomp.py",
    ),
    case(
        "paho-mqtt",
        "a client with a thread, connected",
        """
        import os
        from urllib.parse import urlsplit
        import paho.mqtt.client as mqtt
        server = urlsplit(os.environ["MQTT_URL"])
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        client.connect(server.hostname, server.port)
        client.loop_start()
        def publish(text):
            sent = client.publish("t", text, qos=1)
            sent.wait_for_publish(10)
            return sent.is_published()
        publish("first")
        """,
        "return publish(str(n))",
        server="mqtt",
    ),
    case(
        "nats-py",
        "a connection",
        """
        import asyncio, os
        import nats
        loop = asyncio.new_event_loop()
        link = loop.run_until_complete(nats.connect(os.environ["NATS_URL"]))
        async def ask(n):
            inbox = link.new_inbox()
            seen = await link.subscribe(inbox)
            await link.publish(inbox, str(n).encode())
            answer = await seen.next_msg(5)
            await seen.unsubscribe()
            return answer.data
        loop.run_until_complete(ask(1))
        """,
        "return [loop.run_until_complete(ask(m)) for m in range(n, n + 30)]",
        server="nats",
        in_greenlets=False,
    ),
    case(
        "pynng",
        "two connected sockets",
        """
        import pynng
        one = pynng.Pair0(listen="inproc://a", recv_timeout=5000)
        other = pynng.Pair0(dial="inproc://a", recv_timeout=5000)
        one.send(b"first")
        other.recv()
        """,
        """
        one.send(str(n).encode())
        return other.recv()
        """,
    ),
    case(
        "rpyc",
        "a server in a thread, and a connection to it",
        """
        import threading, time
        import rpyc
        from rpyc.utils.server import ThreadedServer
        class Echo(rpyc.Service):
            def exposed_echo(self, n):
                return n
        server = ThreadedServer(Echo, hostname="127.0.0.1", port=0)
        threading.Thread(target=server.start, daemon=True).start()
        while not server.active:
            time.sleep(0.01)
        link = rpyc.connect("127.0.0.1", server.port)
        link.root.echo(1)
        """,
        "return [link.root.echo(m) for m in range(n, n + 30)]",
    ),
    case(
        "zmq-asyncio",
        "two connected sockets in a loop",
        """
        import asyncio
        import zmq.asyncio
        loop = asyncio.new_event_loop()
        context = zmq.asyncio.Context()
        push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        async def ask(n):
            await push.send_string(str(n))
            return await pull.recv_string()
        loop.run_until_complete(ask(1))
        """,
        "return [loop.run_until_complete(ask(m)) for m in range(n, n + 30)]",
        "pyzmq",
        in_greenlets=False,
    ),
]
