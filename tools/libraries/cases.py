"""The cases of the atlas: a row each."""

from __future__ import annotations

from dataclasses import dataclass

STANDARD = ("cloudpickle",)
"""What a case of the standard library requires: nothing that is not there anyway."""


@dataclass(frozen=True)
class Case:
    """A library as programs use it. `top` runs at the import of the target; `use` is the body of `use(n)`."""

    name: str
    requires: tuple[str, ...]
    """Of PyPI; the first is the library."""
    what: str
    """What is made at import, in words."""
    top: str
    use: str
    server: str | None = None
    differs: bool = False
    """Answers may be others than those of a program without a pool."""
    is_random: bool = False
    """Each answer is another one, in whatever worker."""
    in_greenlets: bool = True
    answered: str = ""
    """Why what it does instead of working is right."""


def case(name: str, what: str, top: str, use: str, *requires: str, **more: object) -> Case:
    return Case(name, requires or (name,), what, top, use, **more)  # type: ignore[arg-type]


CASES = [
    # Arrays, frames, machine learning.
    case(
        "numpy",
        "a matrix product",
        "import numpy as np\na = np.arange(40000.0).reshape(200, 200)\na @ a",
        "return float((a @ a)[n, n])",
    ),
    case(
        "numpy-generator",
        "a generator without a seed",
        "import numpy as np\nrng = np.random.default_rng()",
        "return float(rng.random())",
        "numpy",
        is_random=True,
    ),
    case(
        "scipy",
        "a decomposition",
        "import numpy as np, scipy.linalg as la\na = np.eye(60) * 3 + 1\nla.svd(a)",
        "return round(float(la.svd(a + n)[1][0]), 6)",
        "scipy",
        "numpy",
    ),
    case(
        "pandas",
        "a frame, grouped",
        "import pandas as pd\nframe = pd.DataFrame({'k': [1, 2] * 500, 'v': range(1000)})\nframe.groupby('k').sum()",
        "return int(frame.groupby('k').v.sum().iloc[n % 2])",
    ),
    case(
        "polars",
        "a frame, grouped",
        "import polars as pl\nframe = pl.DataFrame({'k': [1, 2] * 500, 'v': range(1000)})\nframe.group_by('k').sum()",
        "return int(frame.filter(pl.col('k') == 1 + n % 2)['v'].sum())",
    ),
    case(
        "polars-imported",
        "only imported",
        "import polars as pl",
        "return int(pl.DataFrame({'v': range(n + 1)})['v'].sum())",
        "polars",
    ),
    case(
        "pyarrow",
        "a table, sorted",
        "import pyarrow as pa, pyarrow.compute as pc\ntable = pa.table({'v': list(range(1000))})\npc.sum(table['v'])",
        "return pc.sum(table['v']).as_py() + n",
    ),
    case(
        "pyarrow-dataset",
        "a dataset of Parquet",
        "import os, tempfile, pyarrow as pa, pyarrow.parquet as pq\nfolder = tempfile.mkdtemp()\npq.write_table(pa.table({'v': list(range(1000))}), folder + '/a.parquet')\npq.read_table(folder)",
        "return pq.read_table(folder)['v'][n].as_py()",
        "pyarrow",
    ),
    case(
        "duckdb",
        "a connection in memory",
        "import duckdb\ndb = duckdb.connect()\ndb.execute('create table t as select * from range(1000)')",
        "return db.cursor().execute('select sum(range) from t').fetchone()[0] + n",
    ),
    case(
        "scikit-learn",
        "a fitted linear model",
        "import numpy as np\nfrom sklearn.linear_model import LogisticRegression\nX = np.arange(400.0).reshape(100, 4)\ny = np.arange(100) > 50\nmodel = LogisticRegression(max_iter=1000).fit(X, y)",
        "return bool(model.predict(X[n:n + 1])[0])",
    ),
    case(
        "hist-gradient-boosting",
        "a fitted booster of scikit-learn",
        "import numpy as np\nfrom sklearn.ensemble import HistGradientBoostingClassifier\nX = np.arange(4000.0).reshape(1000, 4)\ny = np.arange(1000) > 500\nmodel = HistGradientBoostingClassifier(max_iter=5).fit(X, y)",
        "return bool(model.predict(X[n:n + 1])[0])",
        "scikit-learn",
    ),
    case(
        "lightgbm",
        "a fitted booster",
        "import numpy as np, lightgbm as lgb\nX = np.arange(4000.0).reshape(1000, 4)\ny = (np.arange(1000) > 500).astype(int)\nmodel = lgb.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, y)",
        "return int(model.predict(X[n:n + 1])[0])",
        "lightgbm",
        "scikit-learn",
    ),
    case(
        "xgboost",
        "a fitted booster",
        "import numpy as np, xgboost\nX = np.arange(4000.0).reshape(1000, 4)\ny = (np.arange(1000) > 500).astype(int)\nmodel = xgboost.XGBClassifier(n_estimators=5).fit(X, y)",
        "return int(model.predict(X[n:n + 1])[0])",
        "xgboost",
        "scikit-learn",
    ),
    case(
        "numba",
        "a parallel function, compiled",
        "import numpy as np\nfrom numba import njit, prange\n@njit(parallel=True)\ndef total(a):\n    s = 0.0\n    for i in prange(a.size):\n        s += a[i]\n    return s\ntotal(np.ones(1000))",
        "return total(np.ones(1000 + n))",
    ),
    case(
        "numexpr",
        "an expression",
        "import numpy as np, numexpr as ne\na = np.arange(1e5)\nne.evaluate('a * 2')",
        "return float(ne.evaluate('a + 1')[n])",
    ),
    case(
        "onnxruntime",
        "only imported",
        "import onnxruntime as ort\nort.get_available_providers()",
        "return ort.get_device()",
    ),
    case(
        "tokenizers",
        "a tokenizer",
        "from tokenizers import Tokenizer, models, pre_tokenizers, trainers\nt = Tokenizer(models.BPE())\nt.pre_tokenizer = pre_tokenizers.Whitespace()\nt.train_from_iterator(['some words to learn'] * 100, trainers.BpeTrainer(vocab_size=50))\nt.encode_batch(['some words'] * 10)",
        "return t.encode_batch(['some words'] * (n + 2))[0].tokens",
    ),
    case(
        "faiss-cpu",
        "an index",
        "import numpy as np, faiss\nindex = faiss.IndexFlatL2(8)\nindex.add(np.eye(8, dtype='float32'))\nindex.search(np.eye(8, dtype='float32'), 1)",
        "return int(index.search(np.eye(8, dtype='float32'), 1)[1][n][0])",
        "faiss-cpu",
        "numpy",
    ),
    case(
        "opencv",
        "a filter",
        "import numpy as np, cv2\nimage = np.ones((400, 400), 'uint8')\ncv2.GaussianBlur(image, (5, 5), 0)",
        "return int(cv2.GaussianBlur(image * n, (5, 5), 0)[3, 3])",
        "opencv-python-headless",
        "numpy",
    ),
    case(
        "pillow",
        "an image",
        "from PIL import Image\nimage = Image.new('RGB', (100, 100))\nimage.resize((50, 50))",
        "return image.resize((n + 1, 2)).size",
    ),
    case(
        "statsmodels",
        "a fitted regression",
        "import numpy as np, statsmodels.api as sm\nx = sm.add_constant(np.arange(50.0))\nfit = sm.OLS(np.arange(50.0) * 2, x).fit()",
        "return round(float(fit.params[1]), 6) + n",
    ),
    case(
        "networkx",
        "a graph",
        "import networkx as nx\ngraph = nx.path_graph(20)",
        "return nx.shortest_path_length(graph, 0, n)",
    ),
    case(
        "sympy",
        "an expression",
        "import sympy\nx = sympy.Symbol('x')\nf = sympy.expand((x + 1) ** 5)",
        "return int(f.subs(x, n))",
    ),
    case("shapely", "a polygon", "import shapely\nbox = shapely.box(0, 0, 1, 1)", "return box.buffer(n).area > 0"),
    case(
        "h5py",
        "an open file",
        "import os, tempfile, h5py\nfile = h5py.File(tempfile.mktemp(), 'w')\nfile['a'] = list(range(100))\nfile.flush()",
        "return int(file['a'][n])",
    ),
    case("zarr", "an array in memory", "import zarr\na = zarr.zeros(100)\na[:] = 7", "return float(a[n])"),
    case(
        "blosc2",
        "compressed bytes",
        "import blosc2\npacked = blosc2.compress2(b'x' * 100000)",
        "return len(blosc2.decompress2(packed)) + n",
    ),
    case(
        "lmdb",
        "an environment",
        "import tempfile, lmdb\nenv = lmdb.open(tempfile.mkdtemp())\nwith env.begin(write=True) as t:\n    t.put(b'k', b'v')",
        "with env.begin() as t:\n    return t.get(b'k')",
    ),
    case(
        "joblib",
        "a parallel call with threads",
        "from joblib import Parallel, delayed\nParallel(2, backend='threading')(delayed(abs)(n) for n in range(4))",
        "return Parallel(2, backend='threading')(delayed(abs)(-m) for m in range(n))",
    ),
    case(
        "matplotlib",
        "a figure",
        "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nfigure = plt.figure()\nfigure.gca().plot([1, 2])",
        "import io\nout = io.BytesIO()\nfigure.savefig(out)\nreturn out.tell() > 1000",
    ),
    # Databases.
    case(
        "sqlite3",
        "an open database",
        "import os, sqlite3, tempfile\ndb = sqlite3.connect(os.path.join(tempfile.mkdtemp(), 'a.db'), check_same_thread=False)\ndb.execute('create table t (v)')\ndb.executemany('insert into t values (?)', [(n,) for n in range(10)])\ndb.commit()",
        "return db.execute('select v from t where v = ?', (n,)).fetchone()[0]",
        STANDARD[0],
    ),
    case(
        "sqlalchemy-sqlite",
        "an engine that has connected",
        "import os, tempfile, sqlalchemy as sa\nengine = sa.create_engine('sqlite:///' + os.path.join(tempfile.mkdtemp(), 'a.db'))\nwith engine.begin() as c:\n    c.execute(sa.text('create table t (v int)'))\n    c.execute(sa.text('insert into t values (1)'))",
        "with engine.connect() as c:\n    return c.execute(sa.text('select v from t')).scalar() + n",
        "sqlalchemy",
    ),
    case(
        "sqlalchemy-postgres",
        "an engine that has connected",
        "import os, sqlalchemy as sa\nengine = sa.create_engine(os.environ['POSTGRES_URL'].replace('postgresql', 'postgresql+psycopg'))\nwith engine.begin() as c:\n    c.execute(sa.text('select 1'))",
        "with engine.connect() as c:\n    return [c.execute(sa.text(f'select {m}')).scalar() for m in range(n, n + 50)]",
        "sqlalchemy",
        "psycopg[binary]",
        server="postgres",
    ),
    case(
        "psycopg",
        "a connection",
        "import os, psycopg\ndb = psycopg.connect(os.environ['POSTGRES_URL'], autocommit=True)\ndb.execute('select 1')",
        "return [db.execute(f'select {m}').fetchone()[0] for m in range(n, n + 50)]",
        "psycopg[binary]",
        server="postgres",
    ),
    case(
        "psycopg-pool",
        "a pool of connections",
        "import os\nfrom psycopg_pool import ConnectionPool\npool = ConnectionPool(os.environ['POSTGRES_URL'], min_size=1, open=True)\nwith pool.connection() as c:\n    c.execute('select 1')",
        "with pool.connection() as c:\n    return [c.execute(f'select {m}').fetchone()[0] for m in range(n, n + 50)]",
        "psycopg-pool",
        "psycopg[binary]",
        server="postgres",
    ),
    case(
        "psycopg2",
        "a connection",
        "import os, psycopg2\ndb = psycopg2.connect(os.environ['POSTGRES_URL'])\ncursor = db.cursor()\ncursor.execute('select 1')",
        "cursor.execute(f'select {n}')\nreturn cursor.fetchone()[0]",
        "psycopg2-binary",
        server="postgres",
    ),
    case(
        "redis",
        "a client that has asked",
        "import os, redis\nr = redis.from_url(os.environ['REDIS_URL'])\nr.set('k', 'v')",
        "return [r.echo(str(m)) for m in range(n, n + 50)]",
        server="redis",
    ),
    case(
        "redis-pubsub",
        "a subscription in a thread",
        "import os, redis\nr = redis.from_url(os.environ['REDIS_URL'])\np = r.pubsub()\np.subscribe(c=lambda m: None)\np.run_in_thread(daemon=True)",
        "return r.echo(str(n))",
        "redis",
        server="redis",
    ),
    case(
        "peewee",
        "an open database",
        "import os, tempfile\nfrom peewee import SqliteDatabase\ndb = SqliteDatabase(os.path.join(tempfile.mkdtemp(), 'a.db'))\ndb.connect()\ndb.execute_sql('create table t (v)')",
        "return db.execute_sql(f'select {n}').fetchone()[0]",
    ),
    case(
        "tinydb",
        "an open file",
        "import tempfile\nfrom tinydb import TinyDB\ndb = TinyDB(tempfile.mktemp())\ndb.insert({'v': 1})",
        "return len(db.all()) + n",
    ),
    case(
        "diskcache",
        "a cache",
        "import tempfile, diskcache\ncache = diskcache.Cache(tempfile.mkdtemp())\ncache['k'] = 1",
        "return cache['k'] + n",
    ),
    # Clients.
    case(
        "httpx",
        "a client with a kept connection",
        "import os, httpx\nclient = httpx.Client(base_url=os.environ['HTTP_URL'])\nclient.get('/first')",
        "return [client.get(f'/{n}-{m}').text for m in range(30)]",
        server="http",
    ),
    case(
        "requests",
        "a session with a kept connection",
        "import os, requests\nsession = requests.Session()\nurl = os.environ['HTTP_URL']\nsession.get(url + '/first')",
        "return [session.get(f'{url}/{n}-{m}').text for m in range(30)]",
        server="http",
    ),
    case(
        "urllib3",
        "a pool with a kept connection",
        "import os, urllib3\nhttp = urllib3.PoolManager()\nurl = os.environ['HTTP_URL']\nhttp.request('GET', url + '/first')",
        "return [http.request('GET', f'{url}/{n}-{m}').data for m in range(30)]",
        server="http",
    ),
    case(
        "aiohttp",
        "only imported",
        "import os, asyncio, aiohttp\nurl = os.environ['HTTP_URL']",
        "async def main():\n    async with aiohttp.ClientSession() as s:\n        async with s.get(f'{url}/{n}') as r:\n            return await r.text()\nreturn asyncio.run(main())",
        server="http",
        in_greenlets=False,
    ),
    case(
        "niquests",
        "a session with a kept connection",
        "import os, niquests\nsession = niquests.Session()\nurl = os.environ['HTTP_URL']\nsession.get(url + '/first')",
        "return [session.get(f'{url}/{n}-{m}').text for m in range(30)]",
        server="http",
    ),
    case(
        "pycurl",
        "a handle with a kept connection",
        "import io, os, pycurl\nhandle = pycurl.Curl()\nurl = os.environ['HTTP_URL']\ndef get(path):\n    out = io.BytesIO()\n    handle.setopt(pycurl.URL, url + path)\n    handle.setopt(pycurl.WRITEDATA, out)\n    handle.perform()\n    return out.getvalue()\nget('/first')",
        "return [get(f'/{n}-{m}') for m in range(30)]",
        server="http",
    ),
    case(
        "boto3",
        "a client",
        "import boto3\ns3 = boto3.client('s3', region_name='eu-central-1', aws_access_key_id='a', aws_secret_access_key='b')",
        "return s3.generate_presigned_url('get_object', {'Bucket': 'b', 'Key': str(n)}).startswith('https')",
    ),
    case(
        "grpcio",
        "a channel",
        "import grpc\nchannel = grpc.insecure_channel('127.0.0.1:1')",
        "try:\n    channel.unary_unary('/a/b')(b'', timeout=1)\nexcept grpc.RpcError as error:\n    return str(error.code())",
    ),
    case(
        "pyzmq",
        "a context with a socket",
        "import zmq\ncontext = zmq.Context()\npush = context.socket(zmq.PUSH)\npull = context.socket(zmq.PULL)\nport = pull.bind_to_random_port('tcp://127.0.0.1')\npush.connect(f'tcp://127.0.0.1:{port}')",
        "push.send_string(str(n))\nreturn pull.recv_string()",
        differs=True,
    ),
    case(
        "zeroconf",
        "an instance",
        "from zeroconf import Zeroconf\nz = Zeroconf(interfaces=['127.0.0.1'])",
        "return z.get_service_info('_http._tcp.local.', f'x{n}._http._tcp.local.', timeout=100)",
    ),
    case(
        "dnspython",
        "a resolver",
        "import dns.resolver\nr = dns.resolver.Resolver(configure=False)",
        "import dns.name\nreturn str(dns.name.from_text(f'a{n}.example'))",
    ),
    case("paramiko", "a key", "import paramiko\nkey = paramiko.RSAKey.generate(1024)", "return key.get_bits() + n"),
    case(
        "confluent-kafka",
        "a producer without a broker",
        "from confluent_kafka import Producer\np = Producer({'bootstrap.servers': '127.0.0.1:1', 'log_level': 0})",
        "p.produce('t', str(n))\nreturn len(p)",
        differs=True,
    ),
    case(
        "fsspec-http",
        "a file system over HTTP",
        "import os, fsspec\nfs = fsspec.filesystem('http')\nurl = os.environ['HTTP_URL']\nfs.cat(url + '/first')",
        "return fs.cat(f'{url}/{n}')",
        "fsspec[http]",
        server="http",
        in_greenlets=False,
    ),
    # What runs beside a program.
    case(
        "apscheduler",
        "a scheduler that runs",
        "from apscheduler.schedulers.background import BackgroundScheduler\ns = BackgroundScheduler()\ns.add_job(print, 'interval', hours=1)\ns.start()",
        "return len(s.get_jobs())",
    ),
    case(
        "watchdog",
        "an observer that runs",
        "import tempfile\nfrom watchdog.observers import Observer\no = Observer()\no.start()",
        "return o.is_alive()",
    ),
    case(
        "loguru",
        "a sink in a thread",
        "import os, tempfile\nfrom loguru import logger\nlogger.remove()\npath = tempfile.mktemp()\nlogger.add(path, enqueue=True)\nlogger.info('first')",
        "logger.info('{}', n)\nlogger.complete()\nreturn True",
    ),
    case(
        "queue-listener",
        "a listener that runs",
        "import logging, logging.handlers, queue\nq = queue.Queue()\nseen = []\nhandler = logging.Handler()\nhandler.emit = seen.append\nlistener = logging.handlers.QueueListener(q, handler)\nlistener.start()\nlog = logging.getLogger('a')\nlog.addHandler(logging.handlers.QueueHandler(q))",
        "import time\nseen.clear()\nlog.warning('x')\nuntil = time.monotonic() + 5\nwhile not seen and time.monotonic() < until:\n    time.sleep(0.01)\nreturn len(seen)",
        STANDARD[0],
    ),
    case(
        "thread-pool",
        "an executor that has run",
        "from concurrent.futures import ThreadPoolExecutor\ne = ThreadPoolExecutor(2)\ne.submit(abs, 1).result()",
        "return e.submit(abs, -n).result(10)",
        STANDARD[0],
    ),
    case(
        "sentry-sdk",
        "a client without a server",
        "import sentry_sdk\nsentry_sdk.init(dsn='http://a@127.0.0.1:1/1')",
        "return sentry_sdk.is_initialized() and n",
    ),
    case(
        "opentelemetry",
        "a tracer with a batch of spans",
        "from opentelemetry import trace\nfrom opentelemetry.sdk.trace import TracerProvider\nfrom opentelemetry.sdk.trace.export import BatchSpanProcessor\nfrom opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\nout = InMemorySpanExporter()\nprovider = TracerProvider()\nprovider.add_span_processor(BatchSpanProcessor(out))\ntrace.set_tracer_provider(provider)",
        "out.clear()\nwith trace.get_tracer('a').start_as_current_span('s'):\n    pass\nprovider.force_flush(5000)\nreturn len(out.get_finished_spans())",
        "opentelemetry-sdk",
    ),
    case(
        "prometheus-client",
        "a counter",
        "from prometheus_client import Counter, generate_latest\nc = Counter('c', 'c')\nc.inc()",
        "return b'c_total' in generate_latest()",
    ),
    case(
        "prometheus-server",
        "an exporter that listens",
        "from prometheus_client import start_http_server\nserver, thread = start_http_server(0, addr='127.0.0.1')",
        "import urllib.request\nreturn urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/').status",
        "prometheus-client",
    ),
    case(
        "structlog", "a logger", "import structlog\nlog = structlog.get_logger()", "return callable(log.bind(n=n).info)"
    ),
    case("tqdm", "a bar", "from tqdm import tqdm\nbar = tqdm(total=10, disable=True)", "bar.update(1)\nreturn n"),
    # Random numbers.
    case(
        "faker",
        "a generator without a seed",
        "from faker import Faker\nfake = Faker()",
        "return fake.name()",
        is_random=True,
    ),
    case(
        "random",
        "a generator without a seed",
        "import random\nr = random.Random()",
        "return r.random()",
        STANDARD[0],
        is_random=True,
    ),
    # Frameworks and the rest.
    case(
        "django",
        "set up with SQLite",
        "import os, tempfile, django\nfrom django.conf import settings\nsettings.configure(DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': os.path.join(tempfile.mkdtemp(), 'a.db')}})\ndjango.setup()\nfrom django.db import connection\nconnection.cursor().execute('create table t (v)')",
        "return connection.cursor().execute(f'select {n}').fetchone()[0]",
    ),
    case(
        "fastapi",
        "an app",
        "from fastapi import FastAPI\nfrom fastapi.testclient import TestClient\napp = FastAPI()\n@app.get('/{n}')\ndef read(n: int): return n",
        "return TestClient(app).get(f'/{n}').json()",
        "fastapi",
        "httpx",
    ),
    case("pydantic", "a model", "from pydantic import BaseModel\nclass M(BaseModel):\n    a: int", "return M(a=n).a"),
    case(
        "cryptography",
        "a key",
        "from cryptography.fernet import Fernet\nf = Fernet(Fernet.generate_key())",
        "return f.decrypt(f.encrypt(str(n).encode()))",
    ),
    case(
        "lxml",
        "a parsed document",
        "from lxml import etree\nroot = etree.fromstring('<a><b/></a>')",
        "return len(root) + n",
    ),
    case("regex", "a pattern", "import regex\np = regex.compile(r'\\\\p{L}+')", "return p.findall('ab c')[0] + str(n)"),
    case("orjson", "bytes", "import orjson\norjson.dumps({})", "return orjson.dumps({'n': n})"),
    case(
        "spacy",
        "a blank pipeline",
        "import spacy\nnlp = spacy.blank('en')\nnlp('some words')",
        "return len(nlp('some more words'))",
    ),
    case(
        "nltk",
        "a stemmer",
        "from nltk.stem import PorterStemmer\ns = PorterStemmer()",
        "return s.stem('running') + str(n)",
    ),
    case(
        "pyproj",
        "a transformer",
        "from pyproj import Transformer\nt = Transformer.from_crs(4326, 3857)",
        "return round(t.transform(10, n)[0], 3)",
    ),
    case(
        "uvloop",
        "a loop that has run",
        "import asyncio, uvloop\nloop = uvloop.new_event_loop()\nloop.run_until_complete(asyncio.sleep(0))",
        "return loop.run_until_complete(asyncio.sleep(0, n))",
        in_greenlets=False,
    ),
    case(
        "asyncio",
        "a loop that has run",
        "import asyncio\nloop = asyncio.new_event_loop()\nloop.run_until_complete(asyncio.sleep(0))",
        "return loop.run_until_complete(asyncio.sleep(0, n))",
        STANDARD[0],
        in_greenlets=False,
    ),
    case(
        "multiprocessing",
        "a manager",
        "import multiprocessing\n",
        "return multiprocessing.get_context('spawn').Lock().acquire()",
        STANDARD[0],
    ),
    case("jinja2", "a template", "from jinja2 import Template\nt = Template('{{ n }}')", "return t.render(n=n)"),
    case(
        "babel",
        "a locale",
        "from babel.numbers import format_decimal\nformat_decimal(1.5, locale='de')",
        "return format_decimal(n + 0.5, locale='de')",
    ),
    case(
        "rtree",
        "an index",
        "from rtree import index\ni = index.Index()\ni.insert(0, (0, 0, 1, 1))",
        "return list(i.intersection((0, 0, 2, 2)))",
    ),
    case(
        "gensim",
        "a model of words",
        "from gensim.models import Word2Vec\nm = Word2Vec([['a', 'b', 'c']] * 20, min_count=1, vector_size=8, workers=2, seed=1)",
        "return len(m.wv['a']) + n",
    ),
    case(
        "dask",
        "an array, computed by threads",
        "import dask\nimport dask.array as da\nx = da.ones((100, 100), chunks=50)\nx.sum().compute()",
        "return float(x.sum().compute()) + n",
        "dask[array]",
    ),
]
