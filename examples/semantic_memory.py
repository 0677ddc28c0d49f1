"""Finding memories by meaning, by words, and by both, with filters that never cost a result.

    python examples/semantic_memory.py

The embedder is a stand-in that counts the topics it knows, so that nothing is downloaded; `index["embed"]` takes any
function, coroutine, LangChain `Embeddings`, or the name of a model such as "openai:text-embedding-3-small".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from stepvault.stores.sqlite import SqliteStore

TOPICS = {
    "food": "eat dinner lunch pizza soup vegetarian cook restaurant hungry meal",
    "travel": "travel train flight plane hotel trip journey airport seat",
    "music": "music concert piano song band jazz listen",
    "sport": "sport run marathon bike football match swim",
}
MEMORIES = {
    "diet": {"text": "Ada is vegetarian and likes to cook soup", "source": "chat", "year": 2024},
    "seat": {"text": "On a train or a flight Ada wants a window seat", "source": "chat", "year": 2025},
    "race": {"text": "Ada will run the Lisbon marathon", "source": "mail", "year": 2025},
    "piano": {"text": "Ada plays jazz on the piano", "source": "mail", "year": 2023},
}


def embed(texts: Sequence[str]) -> list[list[float]]:
    """One number per topic: how many of its words the text has."""
    counted = []
    for text in texts:
        words = text.lower().replace("?", "").split()
        counted.append([0.01 + sum(word in topic.split() for word in words) for topic in TOPICS.values()])
    return counted


def main() -> None:
    index = {"dims": len(TOPICS), "embed": embed, "fields": ["text"]}
    memories = ("memories", "ada")
    with SqliteStore.from_conn_string(":memory:", index=index) as store:
        for key, value in MEMORIES.items():
            store.put(memories, key, value)

        def show(title: str, **search: object) -> None:
            found = store.search(memories, limit=2, **search)  # type: ignore[arg-type]
            print(f"{title}\n" + "\n".join(f"  {item.score:6.3f}  {item.value['text']}" for item in found))

        show("By meaning: where is she hungry for a meal?", query="hungry meal restaurant")
        show("By words: Lisbon", query="lisbon", mode="text")
        show("By both: journey Lisbon", query="journey lisbon", mode="hybrid")
        show(
            "By meaning, from mails of 2024 or later",
            query="hotel trip",
            filter={"source": "mail", "year": {"$gte": 2024}},
        )
        show("Only what fits well", query="concert song", min_score=0.9)
        show("Only what is fresh", query="concert song", max_age=timedelta(days=30))


if __name__ == "__main__":
    main()
