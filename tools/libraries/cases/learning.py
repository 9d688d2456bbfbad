"""Models that learn, and what looks things up by vectors."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "scikit-learn",
        "a fitted linear model",
        """
        import numpy as np
        from sklearn.linear_model import LogisticRegression
        X = np.arange(400.0).reshape(100, 4)
        y = np.arange(100) > 50
        model = LogisticRegression(max_iter=1000).fit(X, y)
        """,
        "return bool(model.predict(X[n:n + 1])[0])",
    ),
    case(
        "hist-gradient-boosting",
        "a fitted booster of scikit-learn",
        """
        import numpy as np
        from sklearn.ensemble import HistGradientBoostingClassifier
        X = np.arange(4000.0).reshape(1000, 4)
        y = np.arange(1000) > 500
        model = HistGradientBoostingClassifier(max_iter=5).fit(X, y)
        """,
        "return bool(model.predict(X[n:n + 1])[0])",
        "scikit-learn",
    ),
    case(
        "lightgbm",
        "a fitted booster",
        """
        import numpy as np, lightgbm as lgb
        X = np.arange(4000.0).reshape(1000, 4)
        y = (np.arange(1000) > 500).astype(int)
        model = lgb.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, y)
        """,
        "return int(model.predict(X[n:n + 1])[0])",
        "lightgbm",
        "scikit-learn",
    ),
    case(
        "xgboost",
        "a fitted booster",
        """
        import numpy as np, xgboost
        X = np.arange(4000.0).reshape(1000, 4)
        y = (np.arange(1000) > 500).astype(int)
        model = xgboost.XGBClassifier(n_estimators=5).fit(X, y)
        """,
        "return int(model.predict(X[n:n + 1])[0])",
        "xgboost",
        "scikit-learn",
    ),
    case(
        "onnxruntime",
        "only imported",
        """
        import onnxruntime as ort
        ort.get_available_providers()
        """,
        "return ort.get_device()",
    ),
    case(
        "faiss-cpu",
        "an index",
        """
        import numpy as np, faiss
        index = faiss.IndexFlatL2(8)
        index.add(np.eye(8, dtype="float32"))
        index.search(np.eye(8, dtype="float32"), 1)
        """,
        """return int(index.search(np.eye(8, dtype="float32"), 1)[1][n][0])""",
        "faiss-cpu",
        "numpy",
    ),
    case(
        "statsmodels",
        "a fitted regression",
        """
        import numpy as np, statsmodels.api as sm
        x = sm.add_constant(np.arange(50.0))
        fit = sm.OLS(np.arange(50.0) * 2, x).fit()
        """,
        "return round(float(fit.params[1]), 6) + n",
    ),
    case(
        "gensim",
        "a model of words",
        """
        from gensim.models import Word2Vec
        m = Word2Vec([["a", "b", "c"]] * 20, min_count=1, vector_size=8, workers=2, seed=1)
        """,
        """return len(m.wv["a"]) + n""",
    ),
    case(
        "random-forest",
        "a forest of scikit-learn, fitted in threads",
        """
        import numpy as np
        from sklearn.ensemble import RandomForestClassifier
        X = np.arange(400.0).reshape(100, 4)
        y = np.arange(100) > 50
        model = RandomForestClassifier(10, n_jobs=2, random_state=1).fit(X, y)
        """,
        "return bool(model.predict(X[n : n + 1])[0])",
        "scikit-learn",
    ),
    case(
        "grid-search",
        "a search of scikit-learn, in processes",
        """
        import numpy as np
        from sklearn.linear_model import Ridge
        from sklearn.model_selection import GridSearchCV
        X = np.arange(400.0).reshape(100, 4) % 7
        y = np.arange(100) % 5
        def best(*alphas):
            return GridSearchCV(Ridge(), {"alpha": alphas}, cv=2, n_jobs=2).fit(X, y).best_params_["alpha"]
        best(0.1, 1.0)
        """,
        "return best(0.1 + n, 0.2 + n)",
        "scikit-learn",
    ),
    case(
        "catboost",
        "a fitted booster",
        """
        import numpy as np
        from catboost import CatBoostClassifier
        X = np.arange(400.0).reshape(100, 4)
        y = (np.arange(100) > 50).astype(int)
        model = CatBoostClassifier(iterations=5, verbose=False, allow_writing_files=False, random_seed=1).fit(X, y)
        """,
        "return int(model.predict(X[n : n + 1])[0])",
    ),
    case(
        "implicit",
        "a fitted recommender",
        """
        import numpy as np
        import scipy.sparse as sp
        from implicit.als import AlternatingLeastSquares
        ratings = sp.csr_matrix((np.random.default_rng(1).random((50, 20)) > 0.7).astype("float32"))
        model = AlternatingLeastSquares(factors=4, iterations=3, random_state=1, num_threads=2)
        model.fit(ratings, show_progress=False)
        """,
        "return len(model.recommend(n, ratings[n], N=3)[0])",
    ),
    case(
        "jax",
        "a compiled function that has run",
        """
        import jax
        import jax.numpy as jnp
        f = jax.jit(lambda x: (x * 2).sum())
        f(jnp.arange(10.0)).block_until_ready()
        """,
        "return float(f(jnp.arange(10.0) + n))",
    ),
    case(
        "onnxruntime-session",
        "a session with two threads",
        """
        import numpy as np
        import onnxruntime as ort
        from onnx import TensorProto, helper
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 256]) for name in "abc"]
        graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "g", values[:2], values[2:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        session = ort.InferenceSession(model.SerializeToString(), options)
        one = np.ones((256, 256), "float32")
        session.run(None, {"a": one, "b": one})
        """,
        """return float(session.run(None, {"a": one * n, "b": one})[0][0, 0])""",
        "onnxruntime",
        "onnx",
    ),
    case(
        "openvino",
        "a compiled model that has run",
        """
        import numpy as np
        import openvino as ov
        from openvino import opset13 as ops
        x = ops.parameter([4], np.float32)
        model = ov.Core().compile_model(ov.Model([ops.relu(x)], [x]), "CPU")
        model(np.ones(4, "float32"))
        """,
        """return float(model(np.full(4, n, "float32"))[0][0])""",
    ),
    case(
        "optuna",
        "a study in SQLite",
        """
        import os, tempfile
        import optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(storage="sqlite:///" + os.path.join(tempfile.mkdtemp(), "a.db"))
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
        """,
        """
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        return study.best_value <= 1
        """,
    ),
    case(
        "usearch",
        "an index",
        """
        import numpy as np
        from usearch.index import Index
        points = np.eye(8, dtype="float32")
        index = Index(ndim=8)
        index.add(np.arange(8), points)
        index.search(points, 1)
        """,
        "return int(index.search(points[n], 1).keys[0])",
    ),
    case(
        "annoy",
        "an index",
        """
        from annoy import AnnoyIndex
        index = AnnoyIndex(8, "euclidean")
        for m in range(8):
            index.add_item(m, [float(m == k) for k in range(8)])
        index.build(2, n_jobs=2)
        """,
        "return index.get_nns_by_item(n, 1)[0]",
    ),
    case(
        "hnswlib",
        "an index",
        """
        import hnswlib
        import numpy as np
        points = np.eye(8, dtype="float32")
        index = hnswlib.Index(space="l2", dim=8)
        index.init_index(max_elements=100)
        index.set_num_threads(2)
        index.add_items(points)
        """,
        "return int(index.knn_query(points[n], k=1)[0][0][0])",
        "hnswlib",
        "numpy",
    ),
    case(
        "qdrant-client",
        "a collection in memory",
        """
        from qdrant_client import QdrantClient
        from qdrant_client.models import Distance, PointStruct, VectorParams
        client = QdrantClient(":memory:")
        client.create_collection("c", vectors_config=VectorParams(size=8, distance=Distance.DOT))
        points = [PointStruct(id=m, vector=[float(m == k) for k in range(8)]) for m in range(8)]
        client.upsert("c", points)
        """,
        """return client.query_points("c", query=points[n].vector, limit=1).points[0].id""",
    ),
    case(
        "chromadb",
        "a collection in memory",
        """
        import chromadb
        client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
        points = [[float(m == k) for k in range(8)] for m in range(8)]
        collection = client.create_collection("cases", embedding_function=None)
        collection.add(ids=[str(m) for m in range(8)], embeddings=points)
        """,
        """return collection.query(query_embeddings=[points[n]], n_results=1)["ids"][0]""",
    ),
    case(
        "lancedb",
        "a table in files",
        """
        import tempfile
        import lancedb
        points = [[float(m == k) for k in range(8)] for m in range(8)]
        table = lancedb.connect(tempfile.mkdtemp()).create_table(
            "t", [{"v": m, "vector": point} for m, point in enumerate(points)]
        )
        table.search(points[1]).limit(1).to_list()
        """,
        """return table.search(points[n]).limit(1).to_list()[0]["v"]""",
    ),
]
