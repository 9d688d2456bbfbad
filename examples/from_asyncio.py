"""Await a pool: futures of Clutch are awaitable, and many can be in flight at once.

Run: python examples/from_asyncio.py
"""

import asyncio

from clutch import Pool
from shop.tools import count_primes


async def main() -> None:
    async with Pool("shop.tools", profile="async", workers=1) as pool:
        stock = await asyncio.gather(*(pool.submit("fetch_stock", item=item) for item in ("tea", "coffee")))
        print("stock:", stock)

        print("by function:", await pool.submit(count_primes, 100))

        many = [pool.submit("wait_for_supplier", seconds=0.05) for _ in range(50)]
        async with asyncio.timeout(5):
            pids = await asyncio.gather(*many)
        print("50 waits in one worker:", len(set(pids)) == 1)

        async for receipt in pool.stream("receipts", first=1, count=3):
            print("streamed:", receipt)


if __name__ == "__main__":
    asyncio.run(main())
