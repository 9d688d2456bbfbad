"""Repositories of code."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "gitpython",
        "a repository, read by a program that stays",
        """
        import tempfile
        import git
        repository = git.Repo.init(tempfile.mkdtemp())
        me = git.Actor("a", "a@example.org")
        commits = [repository.index.commit(f"commit {m}", author=me, committer=me).hexsha for m in range(6)]
        repository.commit(commits[0]).message
        """,
        "return [repository.commit(commits[m % 6]).message for m in range(n, n + 300)]",
        "GitPython",
    ),
    case(
        "dulwich",
        "a repository with a pack",
        """
        import tempfile
        from dulwich import porcelain
        repository = porcelain.init(tempfile.mkdtemp())
        me = {"author": b"a <a@b>", "committer": b"a <a@b>"}
        commits = [porcelain.commit(repository, b"commit %d" % m, **me) for m in range(6)]
        porcelain.repack(repository)
        """,
        "return [repository[commits[m % 6]].message for m in range(n, n + 300)]",
    ),
    case(
        "pygit2",
        "a repository",
        """
        import tempfile
        import pygit2
        repository = pygit2.init_repository(tempfile.mkdtemp())
        me = pygit2.Signature("a", "a@example.org")
        tree = repository.TreeBuilder().write()
        commits = []
        for m in range(6):
            commits.append(repository.create_commit("HEAD", me, me, f"commit {m}", tree, commits[-1:]))
        """,
        "return [repository[commits[m % 6]].message for m in range(n, n + 300)]",
    ),
]
