"""Call tools by name: one at a time, several at once, with options, and with a mistake in the name.

Run: python examples/call_by_name.py
"""

import clutch
from clutch import Pool


def main() -> None:
    with Pool("shop.tools", workers=2) as pool:
        print("total:", pool.call("total", prices=[19.99, 5.01]))
        print("common words:", pool.call("common_words", text="to be or not to be", most=2))

        futures = [pool.submit("total", prices=[price], tax=0) for price in (1, 2, 3)]
        print("three at once:", [future.result() for future in futures])

        print("with a deadline:", pool.options(deadline=5.0).call("total", prices=[1.5, 2.5], tax=0))

        try:
            pool.call("totl", prices=[1])
        except clutch.NoSuchTool as problem:
            print("a wrong name:", problem)


if __name__ == "__main__":
    main()
