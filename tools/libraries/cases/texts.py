"""Texts and languages, and what searches them."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "tokenizers",
        "a tokenizer",
        """
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.Whitespace()
        t.train_from_iterator(["some words to learn"] * 100, trainers.BpeTrainer(vocab_size=50))
        t.encode_batch(["some words"] * 10)
        """,
        """return t.encode_batch(["some words"] * (n + 2))[0].tokens""",
    ),
    case(
        "regex",
        "a pattern",
        """
        import regex
        p = regex.compile(r"\\p{L}+")
        """,
        """return p.findall("ab c")[0] + str(n)""",
    ),
    case(
        "spacy",
        "a blank pipeline",
        """
        import spacy
        nlp = spacy.blank("en")
        nlp("some words")
        """,
        """return len(nlp("some more words"))""",
    ),
    case(
        "nltk",
        "a stemmer",
        """
        from nltk.stem import PorterStemmer
        s = PorterStemmer()
        """,
        """return s.stem("running") + str(n)""",
    ),
    case(
        "babel",
        "a locale",
        """
        from babel.numbers import format_decimal
        format_decimal(1.5, locale="de")
        """,
        """return format_decimal(n + 0.5, locale="de")""",
    ),
    case(
        "rapidfuzz",
        "a comparison in threads",
        """
        from rapidfuzz import process
        words = [f"word {m}" for m in range(200)]
        process.cdist(words, words, workers=2)
        """,
        "return int(process.cdist(words, words, workers=2)[n, 0])",
        "rapidfuzz",
        "numpy",
    ),
    case(
        "tantivy",
        "an index with a writer",
        """
        import tantivy
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("title", stored=True)
        index = tantivy.Index(builder.build())
        writer = index.writer()
        def add(title):
            writer.add_document(tantivy.Document(title=[title]))
            writer.commit()
            index.reload()
        add("some words")
        """,
        """
        add(f"number{n}")
        return index.searcher().search(index.parse_query(f"number{n}", ["title"]), 1).count
        """,
    ),
    case(
        "whoosh",
        "an index in memory",
        """
        from whoosh.fields import ID, Schema
        from whoosh.filedb.filestore import RamStorage
        from whoosh.qparser import QueryParser
        index = RamStorage().create_index(Schema(title=ID(stored=True)))
        writer = index.writer()
        for m in range(6):
            writer.add_document(title=f"word{m}")
        writer.commit()
        """,
        """
        with index.searcher() as searcher:
            return len(searcher.search(QueryParser("title", index.schema).parse(f"word{n}")))
        """,
        "whoosh-reloaded",
    ),
    case(
        "datasketch",
        "an index of hashes",
        """
        from datasketch import MinHash, MinHashLSH
        def hashed(*words):
            made = MinHash(num_perm=64)
            for word in words:
                made.update(word.encode())
            return made
        index = MinHashLSH(threshold=0.5, num_perm=64)
        for m in range(6):
            index.insert(f"{m}", hashed(f"a{m}", f"b{m}"))
        """,
        """return index.query(hashed(f"a{n}", f"b{n}"))""",
    ),
    case(
        "jieba",
        "a dictionary that was read",
        """
        import logging
        import jieba
        jieba.setLogLevel(logging.ERROR)
        jieba.lcut("some words")
        """,
        """return jieba.lcut("some words")[n % 3]""",
    ),
    case(
        "sentencepiece",
        "a model that has worked in threads",
        """
        import io
        import sentencepiece
        out = io.BytesIO()
        lines = iter(["some words to learn from", "and some more of them"] * 100)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines, model_writer=out, vocab_size=20, minloglevel=2
        )
        model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
        model.encode(["some words"] * 20, num_threads=2)
        """,
        """return model.encode(["some words"] * (n + 2), num_threads=2)[0]""",
    ),
    case(
        "pyahocorasick",
        "an automaton",
        """
        import ahocorasick
        automaton = ahocorasick.Automaton()
        for m in range(6):
            automaton.add_word(f"w{m}", m)
        automaton.make_automaton()
        """,
        """return list(automaton.iter(f"a w{n} b"))""",
    ),
]
