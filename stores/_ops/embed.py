"""Vectors of texts: one call of the embedder per batch, before anything is stored."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from stepvault._core.plan import Call, Op
from stepvault.errors import DimensionsError, EmbeddingError, StepvaultError
from stepvault.stores._ops.context import IndexSettings


def embed(index: IndexSettings, texts: Iterable[str], queries: Iterable[str]) -> Op[tuple[dict[str, bytes], ...]]:
    """The vectors of documents and of queries by their text, as float32.

    Raises:
        EmbeddingError: The embedder failed or returned what is no list of vectors.
        DimensionsError: Its vectors are not of the length that `dims` says.
    """
    documents, asked = list(dict.fromkeys(texts)), list(dict.fromkeys(queries))
    if not documents and not asked:
        return {}, {}
    embeddings = index.embeddings

    def call() -> tuple[Any, Any]:
        made = embeddings.embed_documents(documents) if documents else []
        return made, [embeddings.embed_query(text) for text in asked]

    async def acall() -> tuple[Any, Any]:
        made = await embeddings.aembed_documents(documents) if documents else []
        return made, [await embeddings.aembed_query(text) for text in asked]

    try:
        made, answers = yield Call(call, acall)
    except StepvaultError:
        raise
    except Exception as exc:
        raise EmbeddingError(
            f"The embedder failed ({type(exc).__name__}: {exc}); nothing of this batch was stored."
        ) from exc
    return _by_text(index, documents, made), _by_text(index, asked, answers)


def _by_text(index: IndexSettings, texts: Sequence[str], vectors: Any) -> dict[str, bytes]:
    try:
        made = list(vectors)
    except TypeError as exc:
        raise EmbeddingError(f"The embedder returned {type(vectors).__name__}, no list of vectors.") from exc
    if len(made) != len(texts):
        raise EmbeddingError(f"The embedder returned {len(made)} vectors for {len(texts)} texts.")
    return {text: _packed(index, vector) for text, vector in zip(texts, made, strict=True)}


def _packed(index: IndexSettings, vector: Any) -> bytes:
    try:
        numbers = array("f", (float(number) for number in vector))
    except (TypeError, ValueError, OverflowError) as exc:
        raise EmbeddingError("The embedder returned a vector that is no list of numbers.") from exc
    if len(numbers) != index.dims:
        raise DimensionsError(
            f"The embedder returned a vector of {len(numbers)} numbers, index={{'dims': {index.dims}}}."
        )
    if not all(map(math.isfinite, numbers)):
        raise EmbeddingError("The embedder returned a vector with NaN or infinity in it.")
    return numbers.tobytes()
