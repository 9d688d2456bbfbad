-- The request that wrk repeats: one JSON echo.
wrk.method = "POST"
wrk.body = '{"message": "hello, clutch"}'
wrk.headers["Content-Type"] = "application/json"
