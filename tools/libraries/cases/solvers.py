"""Mathematics: algebra, solvers, optimisation."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "sympy",
        "an expression",
        """
        import sympy
        x = sympy.Symbol("x")
        f = sympy.expand((x + 1) ** 5)
        """,
        "return int(f.subs(x, n))",
    ),
    case(
        "z3-solver",
        "a solver",
        """
        import z3
        x = z3.Int("x")
        solver = z3.Solver()
        solver.add(x > 1)
        solver.check()
        """,
        """
        solver.push()
        solver.add(x == n + 2)
        found = str(solver.check()), str(solver.model()[x])
        solver.pop()
        return found
        """,
    ),
    case(
        "ortools",
        "a model, solved by two threads",
        """
        from ortools.sat.python import cp_model
        def most(limit):
            model = cp_model.CpModel()
            x = model.new_int_var(0, 100, "x")
            model.add(2 * x <= limit)
            model.maximize(x)
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 2
            solver.solve(model)
            return solver.value(x)
        most(10)
        """,
        "return most(10 + n)",
    ),
    case(
        "highspy",
        "a model, solved by two threads",
        """
        import highspy
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("parallel", "on")
        solver.setOptionValue("threads", 2)
        x = solver.addIntegral(lb=0, ub=4)
        y = solver.addIntegral(lb=0, ub=7)
        solver.addConstr(x + 2 * y <= 9)
        solver.maximize(x + y)
        """,
        """
        solver.maximize((n + 1) * x + y)
        return solver.getObjectiveValue()
        """,
        "highspy",
        "numpy",
    ),
    case(
        "pulp",
        "a model, solved by another program",
        """
        import pulp
        def most(limit):
            problem = pulp.LpProblem("p", pulp.LpMaximize)
            x = pulp.LpVariable("x", 0, 100)
            problem += x
            problem += 2 * x <= limit
            problem.solve(pulp.PULP_CBC_CMD(msg=False))
            return x.value()
        most(10)
        """,
        "return most(10 + n)",
    ),
    case(
        "cvxpy",
        "a problem that was solved",
        """
        import cvxpy as cp
        x, p = cp.Variable(), cp.Parameter(value=1)
        problem = cp.Problem(cp.Minimize((x - p) ** 2), [x <= 3])
        problem.solve()
        """,
        """
        p.value = n
        problem.solve()
        return round(float(x.value), 3)
        """,
    ),
    case(
        "gurobipy",
        "a model under the licence that comes with it",
        """
        import gurobipy
        env = gurobipy.Env(params={"OutputFlag": 0})
        model = gurobipy.Model(env=env)
        x = model.addVar(ub=4, vtype="I")
        model.setObjective(x, gurobipy.GRB.MAXIMIZE)
        model.optimize()
        """,
        """
        model.setObjective((n + 1) * x, gurobipy.GRB.MAXIMIZE)
        model.optimize()
        return model.ObjVal
        """,
    ),
    case(
        "pyomo",
        "a model, solved by HiGHS",
        """
        import pyomo.environ as pyo
        model = pyo.ConcreteModel()
        model.x = pyo.Var(bounds=(0, 4))
        model.p = pyo.Param(initialize=1, mutable=True)
        model.most = pyo.Objective(expr=model.p * model.x, sense=pyo.maximize)
        solver = pyo.SolverFactory("appsi_highs")
        solver.solve(model)
        """,
        """
        model.p = n + 1
        solver.solve(model)
        return pyo.value(model.most)
        """,
        "pyomo",
        "highspy",
    ),
    case(
        "gmpy2",
        "a number with many digits",
        """
        import gmpy2
        gmpy2.get_context().precision = 200
        root = gmpy2.sqrt(2)
        """,
        "return str(root + n)",
    ),
    case(
        "casadi",
        "a function, mapped to threads",
        """
        import casadi
        x = casadi.SX.sym("x")
        f = casadi.Function("f", [x], [x * x]).map(8, "thread", 2)
        f(casadi.DM([range(8)]))
        """,
        "return [float(v) for v in f(casadi.DM([range(n, n + 8)])).full()[0]]",
    ),
]
