"""The echo tool as a FastAPI application: the peer of the HTTP row.

An `async def` endpoint with a typed body and a plain return is FastAPI's fastest form of it.
"""

from fastapi import FastAPI
from pydantic import BaseModel

from benches import plain


class EchoArguments(BaseModel):
    """The arguments of the tool, validated."""

    message: str


class EchoResult(BaseModel):
    """The body of the answer; a declared model is what FastAPI encodes fastest."""

    result: str


app = FastAPI()


@app.post("/pools/bench/tools/echo")
async def echo(arguments: EchoArguments) -> EchoResult:
    """The same path, body and answer as Clutch's HTTP front has."""
    return EchoResult(result=plain.echo(arguments.message))
