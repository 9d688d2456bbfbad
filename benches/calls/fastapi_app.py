"""The echo tool as a FastAPI application: the peer of the HTTP row.

An `async def` endpoint with models for body and answer: no slower than its other forms (a dict, a JSONResponse).
"""

from fastapi import FastAPI
from pydantic import BaseModel

from benches.calls import plain


class EchoArguments(BaseModel):
    """The arguments of the tool, validated."""

    message: str


class EchoResult(BaseModel):
    """The body of the answer."""

    result: str


app = FastAPI()


@app.post("/pools/bench/tools/echo")
async def echo(arguments: EchoArguments) -> EchoResult:
    """The same path, body and answer as Clutch's HTTP front has."""
    return EchoResult(result=plain.echo(arguments.message))
