"""Formats, compression, keys."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "cryptography",
        "a key",
        """
        from cryptography.fernet import Fernet
        f = Fernet(Fernet.generate_key())
        """,
        "return f.decrypt(f.encrypt(str(n).encode()))",
    ),
    case(
        "lxml",
        "a parsed document",
        """
        from lxml import etree
        root = etree.fromstring("<a><b/></a>")
        """,
        "return len(root) + n",
    ),
    case(
        "orjson",
        "bytes",
        """
        import orjson
        orjson.dumps({})
        """,
        """return orjson.dumps({"n": n})""",
    ),
    case(
        "paramiko",
        "a key",
        """
        import paramiko
        key = paramiko.RSAKey.generate(1024)
        """,
        "return key.get_bits() + n",
    ),
    case(
        "dnspython",
        "a resolver",
        """
        import dns.resolver
        r = dns.resolver.Resolver(configure=False)
        """,
        """
        import dns.name
        return str(dns.name.from_text(f"a{n}.example"))
        """,
    ),
    case(
        "msgpack",
        "a packer",
        """
        import msgpack
        packer = msgpack.Packer()
        packer.pack({})
        """,
        """return packer.pack({"n": n})""",
    ),
    case(
        "msgspec",
        "an encoder",
        """
        import msgspec
        encoder = msgspec.json.Encoder()
        """,
        """return encoder.encode({"n": n})""",
    ),
    case(
        "protobuf",
        "a message",
        """
        from google.protobuf.struct_pb2 import Struct
        message = Struct()
        message.update({"k": 1})
        """,
        """
        message.update({"k": n})
        return message.SerializeToString()
        """,
    ),
    case(
        "fastavro",
        "a schema",
        """
        import io
        import fastavro
        schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]})
        """,
        """
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"n": n})
        return out.getvalue()
        """,
    ),
    case(
        "pycapnp",
        "a schema",
        """
        import os, tempfile
        import capnp
        path = os.path.join(tempfile.mkdtemp(), "a.capnp")
        with open(path, "w") as out:
            out.write("@0x934efea7f017fff0; struct A { n @0 :Int32; }")
        schema = capnp.load(path)
        """,
        "return schema.A.new_message(n=n).to_bytes()",
    ),
    case(
        "zstandard",
        "a compressor with threads",
        """
        import zstandard
        packer = zstandard.ZstdCompressor(threads=2)
        packed = packer.compress(bytes(5_000_000))
        """,
        """
        packed = packer.compress(bytes([n]) * 5_000_000)
        return zstandard.ZstdDecompressor().decompress(packed)[:2], len(packed)
        """,
    ),
    case(
        "bcrypt",
        "a hash",
        """
        import bcrypt
        hashed = bcrypt.hashpw(b"word", bcrypt.gensalt(4))
        """,
        """return bcrypt.checkpw(b"word", hashed) and n""",
    ),
    case(
        "argon2-cffi",
        "a hash, made in threads",
        """
        from argon2 import PasswordHasher
        hasher = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=4)
        hashed = hasher.hash("word")
        """,
        """return hasher.verify(hashed, "word") and n""",
    ),
    case(
        "pynacl",
        "a box",
        """
        from nacl.secret import SecretBox
        from nacl.utils import random
        box = SecretBox(random(SecretBox.KEY_SIZE))
        """,
        "return box.decrypt(box.encrypt(str(n).encode()))",
    ),
    case(
        "pyjwt",
        "a key",
        """
        import jwt
        from cryptography.hazmat.primitives.asymmetric import ed25519
        key = ed25519.Ed25519PrivateKey.generate()
        """,
        """return jwt.decode(jwt.encode({"n": n}, key, "EdDSA"), key.public_key(), ["EdDSA"])""",
        "pyjwt[crypto]",
    ),
    case(
        "scapy",
        "a packet",
        """
        from scapy.all import IP, UDP
        packet = IP(dst="127.0.0.1") / UDP(dport=1)
        """,
        "return len(bytes(packet / (b'x' * n)))",
    ),
    case(
        "chess",
        "a board",
        """
        import chess
        board = chess.Board()
        """,
        "return board.legal_moves.count() + n",
        "chess",
    ),
]
